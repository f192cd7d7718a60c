// KV append and attention against plain double arithmetic, and the promise that a row's bits depend
// on nothing but the row: not on the tier, the thread count, its batch mates or the chunking.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/cpu/backend_fixture.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/testing.h"
#include "kernels/cpu/tiers.h"
#include "kernels/half.h"
#include "kv/arena.h"

namespace baton::kernels::cpu {
namespace {

struct AttentionShape {
  HeadShape heads;
  uint32_t block_size = 16;
  KvType kv_type = KvType::kF16;
};

OwnedTensor Identity(uint32_t n) {
  std::vector<float> values(size_t{n} * n);
  for (uint32_t i = 0; i < n; ++i) values[size_t{i} * n + i] = 1;
  return Table(values, n);
}

// Runs one sequence (and, when `company` is set, others around it) through QkvLinear, whose weight
// passes chosen numbers on, and Attention in chunks; keeps the arena and the outputs.
class AttentionRun {
 public:
  AttentionRun(const Configuration& configuration, const AttentionShape& shape, uint32_t context)
      : f_(configuration, shape.kv_type), shape_(shape) {
    const HeadShape& heads = shape.heads;
    layout_ = *f_.backend->Layout({.layers = 2,
                                   .kv_heads = heads.kv_heads,
                                   .head_dim = heads.head_dim,
                                   .block_size = shape.block_size});
    const uint32_t blocks = context / shape.block_size + 1;
    arena_ = *kv::KvArena::Create(layout_, {.blocks = {3 * blocks}});
    // Blocks lie in the pool in any order.
    for (uint32_t i = 0; i < blocks; ++i) table_.push_back((i * 7 + 3) % blocks + blocks);
    for (uint32_t i = 0; i < blocks; ++i) other_table_.push_back(i);
    rope_ = *f_.backend->MakeRope({.dims = heads.head_dim / 2 * 2, .context = context + 300});
    std::mt19937_64 random(9);
    pass_on_ = PackOne(*f_.backend, Identity(heads.qkv_cols()));
    consumer_ = PackOne(*f_.backend,
                        RandomTensor(random, TensorType::kF32, 1, heads.heads * heads.head_dim));
  }

  // qkv rows of one chunk that begins at `position`.
  void Step(const std::vector<float>& qkv, uint32_t position, bool company) {
    const HeadShape& heads = shape_.heads;
    const auto rows = static_cast<uint32_t>(qkv.size() / heads.qkv_cols());
    Batch batch;
    std::vector<float> all;
    if (company) {
      std::mt19937_64 random(position);
      all = RandomFloats(random, size_t{5} * heads.qkv_cols());
      batch.sequences.push_back({0, 5, 2, {other_table_}});
    }
    const uint32_t first = company ? 5 : 0;
    batch.sequences.push_back({first, rows, position, {table_}});
    batch.rows = first + rows;
    all.insert(all.end(), qkv.begin(), qkv.end());
    auto x = f_.Rows(all, heads.qkv_cols());
    auto out = f_.backend->NewActivation(batch.rows, heads.heads * heads.head_dim);
    auto rotated = f_.backend->NewActivation(batch.rows, heads.qkv_cols());
    const LayerCall call{heads, 1, batch, arena_->view()};
    f_.backend->QkvLinear(*pass_on_, *x, *rope_, call, *rotated);
    f_.backend->Attention(call, *rotated, *consumer_, *out);
    for (uint32_t row = first; row < batch.rows; ++row) {
      const auto values = f_.backend->Read(*out, row);
      outputs.insert(outputs.end(), values.begin(), values.end());
    }
  }

  void Chunks(const std::vector<float>& qkv, uint32_t chunk, bool company) {
    const size_t cols = shape_.heads.qkv_cols();
    const size_t total = qkv.size() / cols;
    for (size_t at = 0; at < total; at += chunk) {
      const size_t end = std::min(at + chunk, total);
      Step({qkv.begin() + static_cast<ptrdiff_t>(at * cols),
            qkv.begin() + static_cast<ptrdiff_t>(end * cols)},
           static_cast<uint32_t>(at), company);
    }
  }

  std::vector<std::byte> BlockBytes() const {
    std::vector<std::byte> bytes;
    for (uint32_t arena : {kv::kKeyArena, kv::kValueArena}) {
      for (kv::BlockId block : table_) {
        const auto piece = std::as_const(*arena_).Piece(1, arena, block);
        bytes.insert(bytes.end(), piece.begin(), piece.end());
      }
    }
    return bytes;
  }

  // Key or value of one position as stored.
  double Stored(uint32_t arena, uint32_t position, uint32_t kv_head, uint32_t d) const {
    const HeadShape& heads = shape_.heads;
    const uint32_t slot = position % shape_.block_size;
    const auto piece = std::as_const(*arena_).Piece(1, arena, table_[position / shape_.block_size]);
    const size_t at = arena == kv::kKeyArena
                          ? (size_t{kv_head} * heads.head_dim + d) * shape_.block_size + slot
                          : (size_t{kv_head} * shape_.block_size + slot) * heads.head_dim + d;
    if (shape_.kv_type == KvType::kInt8) {
      float scale;
      std::memcpy(&scale, &piece[ScaleAt(slot, kv_head)], sizeof scale);
      return static_cast<double>(static_cast<int8_t>(piece[at])) * static_cast<double>(scale);
    }
    Half half;
    std::memcpy(&half, &piece[at * 2], 2);
    return HalfToFloat(half);
  }

  // Fills every slot from `position` on with NaN.
  void Poison(uint32_t position) {
    for (uint32_t arena : {kv::kKeyArena, kv::kValueArena}) {
      for (uint32_t p = position; p < table_.size() * shape_.block_size; ++p) {
        for (uint32_t h = 0; h < shape_.heads.kv_heads; ++h) PoisonSlot(arena, p, h);
      }
    }
  }

  std::vector<double> outputs;

 private:
  // Bytes from the beginning of an int8 piece.
  size_t ScaleAt(uint32_t slot, uint32_t kv_head) const {
    const size_t numbers = size_t{shape_.heads.kv_heads} * shape_.heads.head_dim;
    return numbers * shape_.block_size + (kv_head * shape_.block_size + slot) * sizeof(float);
  }

  void PoisonSlot(uint32_t arena, uint32_t position, uint32_t kv_head) {
    const HeadShape& heads = shape_.heads;
    const uint32_t slot = position % shape_.block_size;
    const auto piece = arena_->Piece(1, arena, table_[position / shape_.block_size]);
    if (shape_.kv_type == KvType::kInt8) {
      const float nan = std::nanf("");
      std::memcpy(&piece[ScaleAt(slot, kv_head)], &nan, sizeof nan);
      return;
    }
    for (uint32_t d = 0; d < heads.head_dim; ++d) {
      const size_t at = arena == kv::kKeyArena
                            ? (size_t{kv_head} * heads.head_dim + d) * shape_.block_size + slot
                            : (size_t{kv_head} * shape_.block_size + slot) * heads.head_dim + d;
      const Half nan = 0x7e00;
      std::memcpy(&piece[at * 2], &nan, 2);
    }
  }

  Fixture f_;
  const AttentionShape shape_;
  kv::KvLayout layout_;
  std::unique_ptr<kv::KvArena> arena_;
  std::vector<kv::BlockId> table_;
  std::vector<kv::BlockId> other_table_;
  std::unique_ptr<RopeTable> rope_;
  std::unique_ptr<PackedWeight> pass_on_;
  std::unique_ptr<PackedWeight> consumer_;
};

constexpr AttentionShape kShapes[] = {{{9, 3, 64}, 16},
                                      {{4, 4, 32}, 64},
                                      {{8, 1, 24}, 32},
                                      {{26, 2, 8}, 256},
                                      {{9, 3, 64}, 16, KvType::kInt8},
                                      {{8, 1, 24}, 32, KvType::kInt8},
                                      {{26, 2, 8}, 256, KvType::kInt8}};

std::vector<float> RandomQkv(const AttentionShape& shape, uint32_t rows) {
  std::mt19937_64 random(11);
  return RandomFloats(random, size_t{rows} * shape.heads.qkv_cols(), 1.5f);
}

TEST(CpuAttentionTest, IsCloseToExactAttentionOnTheStoredBlocks) {
  constexpr uint32_t kRows = 530;
  for (const AttentionShape& shape : kShapes) {
    AttentionRun run(kConfigurations[2], shape, kRows);
    const auto qkv = RandomQkv(shape, kRows);
    run.Chunks(qkv, kRows, false);
    const uint32_t dim = shape.heads.head_dim;
    const CpuRope rope({.dims = dim / 2 * 2, .context = kRows + 300});
    for (uint32_t row : {0u, 1u, 16u, 255u, 256u, 257u, 511u, 512u, 529u}) {
      for (uint32_t head = 0; head < shape.heads.heads; head += 3) {
        const uint32_t kv_head = head / (shape.heads.heads / shape.heads.kv_heads);
        const float* begin = &qkv[size_t{row} * shape.heads.qkv_cols() + head * dim];
        std::vector<float> q(begin, begin + dim);
        rope.Rotate(*FindTier("scalar")->tier, row, q.data());
        std::vector<double> p(row + 1);
        double sum = 0;
        for (uint32_t key = 0; key <= row; ++key) {
          double score = 0;
          for (uint32_t d = 0; d < dim; ++d) {
            score += q[d] * run.Stored(kv::kKeyArena, key, kv_head, d);
          }
          sum += p[key] = std::exp(score / std::sqrt(dim));
        }
        for (uint32_t d = 0; d < dim; ++d) {
          double exact = 0;
          for (uint32_t key = 0; key <= row; ++key) {
            exact += p[key] / sum * run.Stored(kv::kValueArena, key, kv_head, d);
          }
          const size_t at = (size_t{row} * shape.heads.heads + head) * dim + d;
          // Values are below 8; scores of size 30 carry a relative error of 2^-24 * dim.
          ASSERT_NEAR(run.outputs[at], exact, 8 * 30 * 2e-7) << "row " << row << " head " << head;
        }
      }
    }
  }
}

TEST(CpuAttentionTest, AnInt8CacheRoundsEachVectorToStepsOfItsLargestNumber) {
  constexpr uint32_t kRows = 20;
  constexpr uint32_t kDim = 48;
  const AttentionShape shape = {{2, 2, kDim}, 16, KvType::kInt8};
  AttentionRun run(kConfigurations[1], shape, kRows);
  const auto qkv = RandomQkv(shape, kRows);
  run.Chunks(qkv, kRows, false);
  for (uint32_t row = 0; row < kRows; ++row) {
    for (uint32_t head = 0; head < 2; ++head) {
      const float* value = &qkv[row * shape.heads.qkv_cols() + (4 + head) * kDim];
      float largest = 0;
      for (uint32_t d = 0; d < kDim; ++d) largest = std::max(largest, std::abs(value[d]));
      for (uint32_t d = 0; d < kDim; ++d) {
        EXPECT_NEAR(run.Stored(kv::kValueArena, row, head, d), value[d], largest / 127 * 0.5001);
      }
    }
  }
}

TEST(CpuAttentionTest, AnyChunkingTierThreadCountAndCompanyGivesTheSameBits) {
  constexpr uint32_t kRows = 300;
  for (const AttentionShape& shape : kShapes) {
    const auto qkv = RandomQkv(shape, kRows);
    AttentionRun expected(kConfigurations[0], shape, kRows);
    expected.Chunks(qkv, kRows, false);
    for (const auto& configuration : kConfigurations) {
      for (uint32_t chunk : {1u, 7u, 16u, 64u, kRows}) {
        if (chunk == 1 && configuration.threads != 2) continue;          // slow
        if (shape.kv_type == KvType::kInt8 && chunk % 2 == 1) continue;  // likewise
        AttentionRun run(configuration, shape, kRows);
        run.Chunks(qkv, chunk, chunk % 2 == 0);
        EXPECT_EQ(run.outputs, expected.outputs) << "chunk " << chunk;
        EXPECT_EQ(run.BlockBytes(), expected.BlockBytes()) << "chunk " << chunk;
      }
    }
  }
}

// In every tier. Groups larger than a register tile, blocks as long as a segment, and chunks that
// begin and end within segments.
TEST(CpuAttentionTest, PromptsInManyRowsGiveTheBitsOfOneRowAtATime) {
  constexpr uint32_t kRows = 290;
  for (const KvType kv_type : {KvType::kF16, KvType::kInt8}) {
    const AttentionShape shape = {{20, 2, 32}, 256, kv_type};
    const auto qkv = RandomQkv(shape, kRows);
    AttentionRun expected(kConfigurations[0], shape, kRows);
    expected.Chunks(qkv, 1, false);
    for (const TierEntry& entry : Tiers()) {
      if (!entry.runs) continue;
      for (const uint32_t chunk : {90u, kRows}) {
        AttentionRun run({entry.tier->name, 2}, shape, kRows);
        run.Chunks(qkv, chunk, false);
        EXPECT_EQ(run.outputs, expected.outputs) << entry.tier->name << " chunk " << chunk;
      }
    }
  }
}

TEST(CpuAttentionTest, WhatLiesBehindAPositionDoesNotTouchIt) {
  constexpr uint32_t kRows = 270;
  for (const AttentionShape& shape : kShapes) {
    const auto qkv = RandomQkv(shape, kRows);
    AttentionRun expected(kConfigurations[1], shape, kRows);
    expected.Chunks(qkv, 10, false);
    for (const auto& configuration : {kConfigurations[0], kConfigurations[1]}) {
      AttentionRun run(configuration, shape, kRows);
      run.Poison(0);
      run.Chunks(qkv, 10, false);
      EXPECT_EQ(run.outputs, expected.outputs);
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
