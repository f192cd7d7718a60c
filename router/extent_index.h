// Which worker holds which prefix, by extents: a hint for placement, never for truth (workers match
// blocks exactly). An entry says that a place holds a chain up to the block of that name. Chains
// are entered where an extent of 16 blocks is full and where they end; what lies between is
// implied.
//
// A sorted array of (name, group of 32 places) -> which of them, cut into shards by the name's
// first bits: 12 bytes for an entry of one place, and all places of a name beside each other. Of a
// name 58 bits are kept; two chains that share them cost a wrong guess.
#ifndef BATON_ROUTER_EXTENT_INDEX_H_
#define BATON_ROUTER_EXTENT_INDEX_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "common/ids.h"

namespace baton::router {

// Owner thread: the core's. The same calls in the same order give the same answers.
class ExtentIndex {
 public:
  static constexpr uint32_t kExtentBlocks = 16;
  static constexpr uint32_t kMaxPlaces = 8192;
  static constexpr size_t kLeastBytes = size_t{1} << 20;

  // `max_bytes` (at least kLeastBytes) is never exceeded: the deepest extents go first, and new
  // ones as deep are not taken until a quarter is free again.
  explicit ExtentIndex(size_t max_bytes);

  // A place for one life of a worker's cache; absent: all are taken.
  std::optional<uint32_t> AddPlace();
  // Forgets what the place held, at once for Match and bit by bit in memory: later Set calls tidy
  // up. The number is given out again after that.
  void RemovePlace(uint32_t place);

  // `depth`: of the block's extent in its chain. A place must be live.
  void Set(uint32_t place, const Digest& block, uint32_t depth);
  // Whether it was there.
  bool Clear(uint32_t place, const Digest& block);

  // Of a prompt whose full blocks have these names: how many of them from the first on each place
  // holds; by place, places() long. Those that hold a longer chain of which the prompt shares only
  // part of an extent count up to that extent.
  void Match(std::span<const Digest> blocks, std::vector<uint32_t>& held) const;

  uint32_t places() const { return places_; }
  // Pairs of place and entry, those of removed places included until they are tidied up.
  uint64_t entries() const { return entries_; }
  // All memory, spare room included.
  size_t bytes() const { return bytes_; }
  // Entries that the cap dropped or refused.
  uint64_t dropped() const { return dropped_; }

 private:
  static constexpr uint32_t kShardBits = 10;
  static constexpr uint32_t kShards = 1 << kShardBits;
  static constexpr uint32_t kDeepest = 255;  // deeper extents count as this

  struct Shard {
    std::vector<uint64_t> keys;  // ascending: 48 bits of the name, 8 of the group, 8 of the depth
    std::vector<uint32_t> bits;  // never zero
  };
  using PlaceBits = std::vector<uint32_t>;  // a word per group

  static uint32_t ShardOf(const Digest& block) {
    return static_cast<uint32_t>(block.hi >> (64 - kShardBits));
  }
  static uint64_t KeyOf(const Digest& block, uint32_t group) {
    return (block.hi << kShardBits >> 16 << 16) | group << 8;
  }

  bool IsLive(uint32_t place) const {
    return place < places_ && (live_[place / 32] >> place % 32 & 1) != 0;
  }
  static size_t Find(const Shard& shard, uint64_t key);
  // `out`: those of `among` that hold the block. Whether there are any.
  bool Holders(const Digest& block, const PlaceBits& among, PlaceBits& out) const;
  void MatchEnd(std::span<const Digest> extent, size_t before, PlaceBits& lost,
                std::vector<uint32_t>& held) const;
  void Insert(Shard& shard, size_t at, uint64_t key, uint32_t bits);
  void Erase(Shard& shard, size_t at);
  void Resize(Shard& shard, size_t capacity);
  void GiveBack(Shard& shard);
  void Sweep(Shard& shard);
  // One shard of a round for the removed places; false: there are none.
  bool SweepRemoved();
  bool MakeRoom(size_t bytes);
  void LowerLimit();

  const size_t max_bytes_;
  std::vector<Shard> shards_;
  uint32_t places_ = 0;
  PlaceBits live_;
  PlaceBits leaving_;          // being swept out of all shards
  PlaceBits left_;             // those that come after them
  std::set<uint32_t> free_;    // places
  uint32_t leave_cursor_ = 0;  // next shard; kShards: none leaves
  uint32_t cap_cursor_ = 0;    // next shard to be swept for room; kShards: all are
  uint32_t limit_ = kDeepest;  // deeper ones are dropped
  std::array<uint64_t, kDeepest + 1> by_depth_{};  // keys
  uint64_t entries_ = 0;
  uint64_t dropped_ = 0;
  size_t bytes_ = 0;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_EXTENT_INDEX_H_
