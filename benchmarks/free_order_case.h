// The inputs on which both orders run: decode rows at the end of sequences, and weights, in the
// shape of SmolLM2-135M.
#ifndef BATON_BENCHMARKS_FREE_ORDER_CASE_H_
#define BATON_BENCHMARKS_FREE_ORDER_CASE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/huge_memory.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tier.h"
#include "kernels/cpu/weight.h"
#include "kernels/raw_tensor.h"
#include "kv/arena.h"

namespace baton::benchmarks {

inline constexpr kernels::HeadShape kCaseHeads = {9, 3, 64};
inline constexpr uint32_t kCaseInputs = 576;
inline constexpr uint32_t kCaseOutputs = 3072;

// Sequences of one length, each with its last position as a row.
class DecodeCase {
 public:
  DecodeCase(uint32_t sequences, uint32_t context, uint32_t layers);

  // Alive as long as this.
  kernels::LayerCall call(uint32_t layer) const {
    return {kCaseHeads, layer, batch_, arena_->view()};
  }
  const kernels::cpu::CpuActivation& qkv() const { return *qkv_; }

 private:
  std::vector<std::vector<kv::BlockId>> tables_;
  std::unique_ptr<kv::KvArena> arena_;
  kernels::Batch batch_;
  std::unique_ptr<kernels::cpu::CpuActivation> qkv_;
};

// The weights of some layers' gate and up, and rows that meet them.
class LinearCase {
 public:
  LinearCase(kernels::TensorType type, uint32_t rows, uint32_t layers,
             const kernels::cpu::Tier& tier);

  const kernels::cpu::CpuWeight& weight(uint32_t layer) const { return *weights_[layer]; }
  const kernels::cpu::CpuActivation& in() const { return *in_; }

 private:
  kernels::cpu::HugeMemory memory_;
  std::vector<std::unique_ptr<kernels::cpu::CpuWeight>> weights_;
  std::unique_ptr<kernels::cpu::CpuActivation> in_;
};

}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_FREE_ORDER_CASE_H_
