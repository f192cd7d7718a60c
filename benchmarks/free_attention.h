// Attention of decode rows as it would be without the invariant: a sequence's keys are cut into as
// many parts as keep the threads busy, whatever their number, and sums have no fixed order. What
// the segments of docs/numerics.md are measured against; only benchmarks have it.
#ifndef BATON_BENCHMARKS_FREE_ATTENTION_H_
#define BATON_BENCHMARKS_FREE_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "benchmarks/free_order.h"
#include "kernels/backend.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/countdown.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tier.h"

namespace baton::benchmarks {

// Those with the instructions of this tier, or null.
const FreeKernels* FreeKernelsOfTier(const kernels::cpu::Tier& tier);

// The tier with the linear kernels of FreeKernels.
kernels::cpu::Tier FreeTier(const kernels::cpu::Tier& tier, const FreeKernels& kernels);

// Not thread-safe. For the shape that free_order.h names, one row a sequence, keys and values as
// halves, at most kMostKeys of them.
class FreeAttention {
 public:
  static constexpr uint32_t kMostKeys = 8192;

  FreeAttention(const FreeKernels& kernels, const kernels::cpu::Tier& tier,
                kernels::cpu::ThreadPool& pool)
      : kernels_(kernels), tier_(tier), pool_(pool) {}

  // Floats into `out`.
  void Run(const kernels::LayerCall& call, const kernels::cpu::CpuActivation& qkv,
           kernels::cpu::CpuActivation& out);

 private:
  // The softmax state of one row's queries over some keys.
  struct State {
    kernels::cpu::SoftmaxState softmax[kFreeGroup];
    alignas(64) float values[kFreeGroup][kFreeDim];
  };
  struct Pass {
    const kernels::LayerCall& call;
    const kernels::cpu::CpuActivation& qkv;
    kernels::cpu::CpuActivation& out;
  };
  void RunPart(uint32_t head, uint32_t part, const Pass& pass);
  void Finish(uint32_t head, const Pass& pass);

  const FreeKernels& kernels_;
  const kernels::cpu::Tier& tier_;
  kernels::cpu::ThreadPool& pool_;
  uint32_t parts_ = 1;  // of each sequence
  kernels::cpu::Countdowns left_;
  std::vector<State> states_;  // [sequence][key head][part]
};

}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_FREE_ATTENTION_H_
