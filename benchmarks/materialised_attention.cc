#include "benchmarks/materialised_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/check.h"

namespace baton::benchmarks {
namespace {

using kernels::cpu::DensePanel;
using kernels::cpu::kPanel;

constexpr uint32_t kTileQueries = 12;  // as many as the backend's attention takes together

}  // namespace

MaterialisedAttention::MaterialisedAttention(const kernels::HeadShape& heads, const kv::KvView& kv,
                                             const kernels::cpu::Tier& tier, uint32_t max_rows)
    : heads_(heads),
      group_(heads.heads / heads.kv_heads),
      kv_(kv),
      tier_(tier),
      stride_((max_rows + kPanel - 1) / kPanel * kPanel),
      queries_(size_t{max_rows} * group_ * heads.head_dim),
      scores_(size_t{max_rows} * group_ * stride_),
      sums_(size_t{max_rows} * group_),
      values_(queries_.size()) {
  BATON_CHECK(kv.layout->block_size == kPanel);
}

void MaterialisedAttention::Run(uint32_t layer, std::span<const kv::BlockId> table, uint32_t rows,
                                const float* queries, float* out) {
  const uint32_t count = rows * group_;
  for (uint32_t kv_head = 0; kv_head < heads_.kv_heads; ++kv_head) {
    Gather(kv_head, rows, queries);
    for (uint32_t q = 0; q < count; q += kTileQueries) {
      Scores(layer, kv_head, table, {q, std::min(kTileQueries, count - q)});
    }
    Softmax(count);
    for (uint32_t q = 0; q < count; q += kTileQueries) {
      Values(layer, kv_head, table, {q, std::min(kTileQueries, count - q)});
    }
    Scatter(kv_head, rows, out);
  }
}

void MaterialisedAttention::Gather(uint32_t kv_head, uint32_t rows, const float* queries) {
  const size_t width = size_t{group_} * heads_.head_dim;
  for (uint32_t row = 0; row < rows; ++row) {
    const float* from = queries + (size_t{row} * heads_.kv_heads + kv_head) * width;
    std::memcpy(&queries_[row * width], from, width * sizeof(float));
  }
}

void MaterialisedAttention::Scores(uint32_t layer, uint32_t kv_head,
                                   std::span<const kv::BlockId> table, Tile tile) {
  const uint32_t keys = KeysOf(tile.first + tile.count - 1);
  for (uint32_t key = 0; key < keys; key += kPanel) {
    const uint16_t* run = Piece(layer, kv::kKeyArena, table[key / kPanel]) +
                          size_t{kv_head} * heads_.head_dim * kPanel;
    DensePanel<uint16_t> args;
    args.a = &queries_[size_t{tile.first} * heads_.head_dim];
    args.a_stride = heads_.head_dim;
    args.runs = &run;
    args.run = args.k = heads_.head_dim;
    args.b_stride = kPanel;
    args.rows = tile.count;
    args.out = &scores_[tile.first * stride_ + key];
    args.out_stride = stride_;
    tier_.dense_half(args);
  }
}

void MaterialisedAttention::Softmax(uint32_t queries) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(heads_.head_dim));
  for (uint32_t q = 0; q < queries; ++q) {
    sums_[q] = tier_.softmax(&scores_[q * stride_], KeysOf(q), scale).sum;
  }
}

// What follows the keys that a query sees has weight zero, up to what the tile's last one sees.
void MaterialisedAttention::Values(uint32_t layer, uint32_t kv_head,
                                   std::span<const kv::BlockId> table, Tile tile) {
  const uint32_t keys = KeysOf(tile.first + tile.count - 1);
  for (uint32_t q = tile.first; q < tile.first + tile.count; ++q) {
    std::fill_n(&scores_[q * stride_ + KeysOf(q)], keys - KeysOf(q), 0.0f);
  }
  std::vector<const uint16_t*> runs((keys + kPanel - 1) / kPanel);
  for (uint32_t d = 0; d < heads_.head_dim; d += kPanel) {
    for (size_t i = 0; i < runs.size(); ++i) {
      runs[i] =
          Piece(layer, kv::kValueArena, table[i]) + size_t{kv_head} * kPanel * heads_.head_dim + d;
    }
    DensePanel<uint16_t> args;
    args.a = &scores_[tile.first * stride_];
    args.a_stride = stride_;
    args.runs = runs.data();
    args.run = kPanel;
    args.b_stride = heads_.head_dim;
    args.rows = tile.count;
    args.k = keys;
    args.cols = std::min(kPanel, heads_.head_dim - d);
    args.out = &values_[size_t{tile.first} * heads_.head_dim + d];
    args.out_stride = heads_.head_dim;
    tier_.dense_half(args);
  }
}

void MaterialisedAttention::Scatter(uint32_t kv_head, uint32_t rows, float* out) const {
  const uint32_t dim = heads_.head_dim;
  for (uint32_t q = 0; q < rows * group_; ++q) {
    const size_t head = size_t{q / group_} * heads_.heads + kv_head * group_ + q % group_;
    for (uint32_t d = 0; d < dim; ++d) {
      out[head * dim + d] = values_[size_t{q} * dim + d] / sums_[q];
    }
  }
}

const uint16_t* MaterialisedAttention::Piece(uint32_t layer, uint32_t arena,
                                             kv::BlockId block) const {
  return reinterpret_cast<const uint16_t*>(kv_.Piece(layer, arena, block));
}

}  // namespace baton::benchmarks
