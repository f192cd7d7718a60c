// Who gets blocks next: the oldest request first, whether it is a reservation for a peer's sequence
// or one that starts here. Nobody overtakes an older one that does not fit yet, so nothing starves;
// one whose owner does not want its blocks yet may be overtaken, but they are left free for it.
// Owner thread: the engine's executor.
#ifndef BATON_ENGINE_ROOM_QUEUE_H_
#define BATON_ENGINE_ROOM_QUEUE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/time.h"
#include "kv/block_pool.h"
#include "kv/prefix_cache.h"

namespace baton::engine {

class RoomQueue {
 public:
  enum class Turn : uint8_t {
    kNow,    // it may be granted
    kLater,  // not yet, and younger ones that have a turn are not to wait for it
    kStop,   // neither it nor anybody younger
  };
  using ClaimId = uint64_t;
  struct Claim {
    Time admitted_at{};            // now - age
    std::vector<uint32_t> blocks;  // per group; the pool CanEverFit it
    // Called by Pump, with the blocks taken: those found in the cache, then new ones (reserved).
    // May Add and Cancel.
    std::function<void(kv::CachedLease)> granted;
    // Optional: whether this claim is to be granted now although blocks are free (a source takes no
    // room long before it computes, and lets waiting requests hold only a part of its pool). A
    // claim without it is granted as soon as it fits, and overtakes nobody.
    std::function<Turn()> turn = nullptr;
    // What it may find in the cache; its tokens must stay until it is granted or cancelled.
    std::optional<kv::PrefixQuery> prefix = std::nullopt;
  };

  // Null: claims have no prefix.
  RoomQueue(kv::BlockPool& pool, kv::PrefixCache* cache) : pool_(pool), cache_(cache) {}

  // Never calls back. Follow it by Pump.
  ClaimId Add(Claim claim);
  void Cancel(ClaimId id);  // ignored once granted
  bool IsWaiting(ClaimId id) const;

  // Grants while the next one fits and leaves `spare` blocks of each group for those that run, and
  // what those want that it overtakes. Call it after Add and (posted) whenever blocks became free.
  void Pump(uint32_t spare = 0);

  size_t size() const { return by_age_.size(); }

 private:
  using Key = std::pair<Time, ClaimId>;
  // One that leaves `spare` blocks of each group; false: there was none.
  bool Grant(std::vector<uint32_t> spare);
  absl::StatusOr<kv::CachedLease> Take(const Claim& claim, const std::vector<uint32_t>& spare);

  kv::BlockPool& pool_;
  kv::PrefixCache* const cache_;
  std::map<Key, Claim> by_age_;
  std::map<ClaimId, Time> admitted_at_;
  ClaimId next_ = 1;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_ROOM_QUEUE_H_
