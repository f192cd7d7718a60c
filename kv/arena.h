// KvArena: the memory behind every block of one worker.
#ifndef BATON_KV_ARENA_H_
#define BATON_KV_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kv/layout.h"
#include "kv/piece_seals.h"

namespace baton::kv {

// Owns one mapping that holds the arenas of all layers one after another, each beginning on a page
// (a 2 MiB page when it is that large). Fresh memory is zero. Thread-compatible: addresses never
// change; who may touch which block is decided by the block pool's owner, and two threads may use
// different blocks at the same time.
class KvArena {
 public:
  struct Options {
    std::vector<uint32_t> blocks;  // per group, each >= 1
    // Back the memory by a memfd that peers may map read-only: sealed against shrinking, growing
    // and (where the kernel knows it) any writable mapping but ours. Otherwise private pages.
    bool shareable = false;
    // Keep PieceSeals: 8 bytes for each piece.
    bool sealed = false;
  };

  // Where (layer, arena) lies in the memfd.
  struct Region {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  // `layout` is copied. RESOURCE_EXHAUSTED when the memory cannot be had.
  static absl::StatusOr<std::unique_ptr<KvArena>> Create(const KvLayout& layout,
                                                         const Options& options);
  ~KvArena();
  KvArena(const KvArena&) = delete;
  KvArena& operator=(const KvArena&) = delete;

  const KvLayout& layout() const { return layout_; }
  uint32_t blocks(uint32_t group) const { return blocks_[group]; }

  std::span<std::byte> Piece(uint32_t layer, uint32_t arena, BlockId block);
  std::span<const std::byte> Piece(uint32_t layer, uint32_t arena, BlockId block) const;

  // Zeroes `block` of `group` in all its layers: unwritten slots are zero before they are read or
  // shipped.
  void ZeroBlock(uint32_t group, BlockId block);

  // For kernels; valid as long as this object.
  const KvView& view() const { return view_; }

  // Null unless `sealed`.
  PieceSeals* seals() const { return seals_.get(); }

  // For the shm transport. -1 unless shareable; owned by this object (duplicate it to keep it).
  int fd() const { return fd_; }
  uint64_t total_bytes() const { return total_bytes_; }
  Region region(uint32_t layer, uint32_t arena) const { return regions_[layer][arena]; }

 private:
  KvArena(const KvLayout& layout, const Options& options);
  absl::Status Map(bool shareable);
  void PlaceRegions();

  const KvLayout layout_;
  const std::vector<uint32_t> blocks_;
  std::vector<std::vector<Region>> regions_;  // [layer][arena]
  uint64_t total_bytes_ = 0;
  std::byte* base_ = nullptr;
  int fd_ = -1;
  KvView view_;
  std::unique_ptr<PieceSeals> seals_;
};

}  // namespace baton::kv

#endif  // BATON_KV_ARENA_H_
