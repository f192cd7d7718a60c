#include "benchmarks/free_attention.h"

#include <algorithm>
#include <string_view>

#include "common/check.h"
#include "kv/layout.h"

namespace baton::benchmarks {

using kernels::LayerCall;
using kernels::SequenceRows;
using kernels::cpu::CpuActivation;
using kernels::cpu::Tier;

const FreeKernels* FreeKernelsOfTier(const Tier& tier) {
  const std::string_view name = tier.name;
  if (name == "avx512") return &kFreeAvx512;
  return name == "avx2" ? &kFreeAvx2 : nullptr;
}

Tier FreeTier(const Tier& tier, const FreeKernels& kernels) {
  Tier free = tier;
  free.linear_q4_1 = kernels.linear_q4_1;
  free.dense_half = kernels.dense_half;
  free.pair_half = nullptr;  // one row meets one panel
  return free;
}

void FreeAttention::Run(const LayerCall& call, const CpuActivation& qkv, CpuActivation& out) {
  BATON_CHECK(call.heads.heads == kFreeGroup * call.heads.kv_heads);
  BATON_CHECK(call.heads.head_dim == kFreeDim && call.kv.layout->block_size == kFreeBlock);
  const auto heads = static_cast<uint32_t>(call.batch.sequences.size()) * call.heads.kv_heads;
  const uint32_t wanted = pool_.threads() > 1 ? 4 * pool_.threads() : 1;
  parts_ = (wanted + heads - 1) / heads;
  states_.resize(size_t{heads} * parts_);
  left_.Reset(heads, parts_);
  pool_.Run(heads * parts_, [&](uint32_t item) {
    RunPart(item / parts_, item % parts_, {call, qkv, out});
  });
}

// A part may be empty where there are fewer blocks than parts.
void FreeAttention::RunPart(uint32_t head, uint32_t part, const Pass& pass) {
  const uint32_t kv_heads = pass.call.heads.kv_heads;
  const SequenceRows& sequence = pass.call.batch.sequences[head / kv_heads];
  const uint32_t keys = sequence.first_position + 1;
  BATON_CHECK(sequence.rows == 1 && keys <= kMostKeys);
  const uint32_t blocks = (keys + kFreeBlock - 1) / kFreeBlock;
  const uint32_t begin = blocks * part / parts_;
  const uint32_t end = blocks * (part + 1) / parts_;
  State& state = states_[size_t{head} * parts_ + part];
  if (begin == end) {
    for (auto& softmax : state.softmax) softmax = {0, 0};
  } else {
    const uint16_t* key_blocks[kMostKeys / kFreeBlock];
    const uint16_t* value_blocks[kMostKeys / kFreeBlock];
    alignas(64) float scores[kFreeGroup][kMostKeys];
    const size_t offset = size_t{head % kv_heads} * kFreeDim * kFreeBlock;
    const auto table = sequence.tables[0];
    for (uint32_t i = begin; i < end; ++i) {
      const auto piece = [&](uint32_t arena) {
        const std::byte* at = pass.call.kv.Piece(pass.call.layer, arena, table[i]);
        return reinterpret_cast<const uint16_t*>(at) + offset;
      };
      key_blocks[i - begin] = piece(kv::kKeyArena);
      value_blocks[i - begin] = piece(kv::kValueArena);
    }
    const uint32_t count = std::min(keys, end * kFreeBlock) - begin * kFreeBlock;
    const float* queries =
        pass.qkv.values(sequence.first_row) + head % kv_heads * kFreeGroup * kFreeDim;
    kernels_.scores({queries, key_blocks, end - begin, scores[0], kMostKeys});
    for (uint32_t q = 0; q < kFreeGroup; ++q) {
      state.softmax[q] = tier_.softmax(scores[q], count, 0.125f);
    }
    kernels_.values({scores[0], value_blocks, count, kMostKeys, state.values[0]});
  }
  if (left_.Finish(head)) Finish(head, pass);
}

void FreeAttention::Finish(uint32_t head, const Pass& pass) {
  const uint32_t kv_heads = pass.call.heads.kv_heads;
  State* states = &states_[size_t{head} * parts_];
  const State* first = std::find_if(states, states + parts_,
                                    [](const State& state) { return state.softmax[0].sum > 0; });
  State total = *first;
  for (const State* next = first + 1; next < states + parts_; ++next) {
    for (uint32_t q = 0; q < kFreeGroup && next->softmax[q].sum > 0; ++q) {
      tier_.merge(&total.softmax[q], total.values[q], next->softmax[q], next->values[q], kFreeDim);
    }
  }
  const uint32_t row = pass.call.batch.sequences[head / kv_heads].first_row;
  float* to = pass.out.values(row) + head % kv_heads * kFreeGroup * kFreeDim;
  for (uint32_t q = 0; q < kFreeGroup; ++q) {
    for (uint32_t i = 0; i < kFreeDim; ++i) {
      to[q * kFreeDim + i] = total.values[q][i] / total.softmax[q].sum;
    }
  }
}

}  // namespace baton::benchmarks
