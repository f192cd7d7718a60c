// Work on pieces that several threads share: whoever finishes a piece last goes on with it, and
// nobody waits.
#ifndef BATON_KERNELS_CPU_COUNTDOWN_H_
#define BATON_KERNELS_CPU_COUNTDOWN_H_

#include <atomic>
#include <cstdint>
#include <memory>

namespace baton::kernels::cpu {

// Reset() by one thread before the work is handed out; Finish() by any.
class Countdowns {
 public:
  // `pieces` pieces of `work` units each.
  void Reset(size_t pieces, uint32_t work) {
    if (pieces > room_) {
      left_ = std::make_unique<std::atomic<uint32_t>[]>(pieces);
      room_ = pieces;
    }
    for (size_t i = 0; i < pieces; ++i) left_[i].store(work, std::memory_order_relaxed);
  }
  // A piece with work of its own.
  void Set(size_t piece, uint32_t work) { left_[piece].store(work, std::memory_order_relaxed); }

  // True for the caller that finishes the piece. It sees all that was written for the piece.
  bool Finish(size_t piece, uint32_t work = 1) {
    return left_[piece].fetch_sub(work, std::memory_order_acq_rel) == work;
  }

 private:
  std::unique_ptr<std::atomic<uint32_t>[]> left_;
  size_t room_ = 0;
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_COUNTDOWN_H_
