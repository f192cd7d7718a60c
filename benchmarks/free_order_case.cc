#include "benchmarks/free_order_case.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "common/check.h"
#include "kernels/cpu/testing.h"

namespace baton::benchmarks {
namespace {

using kernels::TensorType;
using kernels::cpu::CpuActivation;
using kernels::cpu::CpuWeight;
using kernels::cpu::OwnedTensor;
using kernels::cpu::RandomFloats;

constexpr uint32_t kBlockSize = 16;

std::unique_ptr<CpuActivation> RandomRows(uint32_t rows, uint32_t cols) {
  auto activation = std::make_unique<CpuActivation>(rows, cols);
  activation->SetForms(kernels::cpu::kFloat);
  std::mt19937_64 random(2);
  const auto values = RandomFloats(random, size_t{rows} * cols);
  std::copy(values.begin(), values.end(), activation->values(0));
  return activation;
}

}  // namespace

DecodeCase::DecodeCase(uint32_t sequences, uint32_t context, uint32_t layers)
    : tables_(sequences), qkv_(RandomRows(sequences, kCaseHeads.qkv_cols())) {
  const uint32_t blocks = (context + kBlockSize - 1) / kBlockSize * sequences;
  auto arena = kv::KvArena::Create(
      kv::MakeUniformLayout({layers, kCaseHeads.kv_heads, kCaseHeads.head_dim, kBlockSize},
                            kv::KvDtype::kF16, kv::KvOrder::kHeadDimSlot,
                            kv::KvOrder::kHeadSlotDim),
      {.blocks = {blocks}});
  BATON_CHECK(arena.ok());
  arena_ = *std::move(arena);
  std::mt19937_64 random(1);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    for (const uint32_t kind : {kv::kKeyArena, kv::kValueArena}) {
      for (uint32_t block = 0; block < blocks; ++block) {
        const auto piece = arena_->Piece(layer, kind, block);
        for (size_t i = 0; i < piece.size(); i += sizeof(uint64_t)) {
          // Halves between 0.5 and 1 of either sign.
          const uint64_t halves = (random() & 0x80ff80ff80ff80ff) | 0x3800380038003800;
          std::memcpy(&piece[i], &halves, sizeof halves);
        }
      }
    }
  }
  for (uint32_t i = 0; i < blocks; ++i) tables_[i % sequences].push_back(i);
  for (const auto& table : tables_) {
    batch_.sequences.push_back({batch_.rows, 1, context - 1, {table}});
    ++batch_.rows;
  }
}

LinearCase::LinearCase(TensorType type, uint32_t rows, uint32_t layers,
                       const kernels::cpu::Tier& tier)
    : in_(RandomRows(rows, kCaseInputs)) {
  std::mt19937_64 random(3);
  kernels::cpu::ThreadPool pool(1);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const OwnedTensor tensor = kernels::cpu::RandomTensor(random, type, kCaseOutputs, kCaseInputs);
    const kernels::RawTensor raw[] = {tensor.raw()};
    auto weight = CpuWeight::Pack(raw, kernels::PartOrder::kConcatenated, memory_, pool);
    BATON_CHECK(weight.ok());
    weights_.push_back(*std::move(weight));
  }
  in_->SetForms(kernels::cpu::kFloat | weights_[0]->input_forms());
  in_->Quantize(tier, in_->values(0), kCaseInputs, 0, rows, 0, in_->blocks());
}

}  // namespace baton::benchmarks
