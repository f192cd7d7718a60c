#include "kernels/cpu/prompt_tile.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"

namespace baton::kernels::cpu {
namespace {

// Vectors of a register tile.
constexpr uint32_t kTileVectors = 6;
constexpr uint32_t kMaxHeadPanels = kMaxHeadDim / kPanel;

void Widen(const Tier& tier, const WidenPanel<uint16_t>& args) { tier.widen_half(args); }
void Widen(const Tier& tier, const WidenPanel<int8_t>& args) { tier.widen_int8(args); }

// x may not overlap out.
void DivideRow(const float* __restrict x, float divisor, uint32_t n, float* __restrict out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = x[i] / divisor;
}

// The keys of a segment that an item's last row sees.
struct KeyRange {
  uint32_t first;  // position
  uint32_t keys;
  uint32_t kv_head;
};

template <typename Stored>
void WidenKeys(const Tier& tier, const StoredKv& kv, const KeyRange& range, uint32_t dim,
               float* to) {
  for (uint32_t key = 0; key < range.keys; key += kPanel, to += size_t{dim} * kPanel) {
    const auto* from = kv.At<Stored>(kv::kKeyArena, range.first + key, range.kv_head);
    Widen(tier, {from, kv.block_size(), dim, to});
  }
}

template <typename Stored>
void WidenValues(const Tier& tier, const StoredKv& kv, const KeyRange& range, uint32_t dim,
                 float* to) {
  for (uint32_t key = 0; key < range.keys; key += kv.block_size()) {
    const auto* from = kv.At<Stored>(kv::kValueArena, range.first + key, range.kv_head);
    const uint32_t rows = std::min(kv.block_size(), range.keys - key);
    for (uint32_t d = 0; d < dim; d += kPanel) {
      Widen(tier, {from + d, dim, rows, to + (d / kPanel * kSegment + key) * kPanel});
    }
  }
}

}  // namespace

uint32_t PromptTile::MaxVectors(const Tier& tier, const LayerCall& call) {
  const kv::KvArenaSpec& spec = call.kv.layout->layers[call.layer].arenas[kv::kKeyArena];
  const bool widens =
      spec.dtype == kv::KvDtype::kInt8 ? tier.widen_int8 != nullptr : tier.widen_half != nullptr;
  const uint32_t group = call.heads.heads / call.heads.kv_heads;
  const uint32_t vectors = std::min(kMaxVectors, kMaxFloats / call.heads.head_dim);
  return widens && call.heads.head_dim % kPanel == 0 && group <= vectors ? vectors : 0;
}

PromptTile::PromptTile(const Tier& tier, const LayerCall& call, const AttentionItem& item)
    : tier_(tier),
      kv_(call, *item.sequence),
      dim_(call.heads.head_dim),
      group_(call.heads.heads / call.heads.kv_heads),
      kv_head_(item.kv_head),
      rows_(item.queries / group_),
      first_row_(item.sequence->first_row + item.first_query / group_),
      first_position_(item.sequence->first_position + item.first_query / group_),
      end_segment_(item.end_segment) {
  BATON_CHECK(item.queries <= MaxVectors(tier, call) && item.kv_heads == 1);
  BATON_CHECK(item.queries % group_ == 0 && item.first_query % group_ == 0);
}

void PromptTile::Run(const CpuActivation& qkv, CpuActivation& out) {
  const size_t head = size_t{kv_head_} * group_ * dim_;
  const size_t floats = size_t{group_} * dim_;
  for (uint32_t row = 0; row < rows_; ++row) {
    std::memcpy(&query_[row * floats], qkv.values(first_row_ + row) + head, floats * sizeof(float));
  }
  kv_.int8() ? RunSegments<int8_t>() : RunSegments<uint16_t>();
  for (uint32_t row = 0; row < rows_; ++row) {
    float* to = out.values(first_row_ + row) + head;
    for (uint32_t v = row * group_; v < (row + 1) * group_; ++v, to += dim_) {
      DivideRow(&value_[v * dim_], state_[v].sum, dim_, to);
    }
  }
}

template <typename Stored>
void PromptTile::RunSegments() {
  for (uint32_t segment = 0; segment < end_segment_; ++segment) {
    const KeyRange keys{segment * kSegment, KeysIn(segment, rows_ - 1), kv_head_};
    WidenKeys<Stored>(tier_, kv_, keys, dim_, wide_);
    Scores(segment, sizeof(Stored) == 1);
    WidenValues<Stored>(tier_, kv_, keys, dim_, wide_);
    Values(segment);
    if (segment > 0) Join(segment);
  }
}

void PromptTile::Scores(uint32_t segment, bool scaled) {
  const uint32_t keys = KeysIn(segment, rows_ - 1);
  for (uint32_t key = 0; key < keys; key += kPanel) AddScores(segment, key);
  if (scaled) Scale(segment, kv::kKeyArena);
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim_));
  SoftmaxState* states = segment == 0 ? state_ : segment_state_;
  for (uint32_t v = 0; v < rows_ * group_; ++v) {
    const uint32_t count = KeysIn(segment, v / group_);
    if (count > 0) states[v] = tier_.softmax(&scores_[v * kStride], count, scale);
  }
  if (scaled) Scale(segment, kv::kValueArena);
}

// Of a panel of keys, for the rows that see its first.
void PromptTile::AddScores(uint32_t segment, uint32_t key) {
  const uint32_t position = segment * kSegment + key;
  const uint32_t row = position > first_position_ ? position - first_position_ : 0;
  const float* panel = &wide_[size_t{key} * dim_];
  DensePanel<float> args;
  args.a = &query_[row * group_ * dim_];
  args.a_stride = dim_;
  args.runs = &panel;
  args.panel_runs = 1;
  args.run = args.k = dim_;
  args.b_stride = kPanel;
  args.rows = (rows_ - row) * group_;
  args.out = &scores_[row * group_ * kStride + key];
  args.out_stride = kStride;
  tier_.dense_float(args);
}

void PromptTile::Scale(uint32_t segment, uint32_t arena) {
  float scales[kSegment];
  const uint32_t keys = KeysIn(segment, rows_ - 1);
  for (uint32_t key = 0; key < keys; key += kPanel) {
    std::memcpy(&scales[key], kv_.ScalesAt(arena, segment * kSegment + key, kv_head_),
                kPanel * sizeof(float));
  }
  for (uint32_t v = 0; v < rows_ * group_; ++v) {
    float* numbers = &scores_[v * kStride];
    const uint32_t count = KeysIn(segment, v / group_);
    for (uint32_t key = 0; key < count; ++key) numbers[key] *= scales[key];
  }
}

// A register tile of rows after the other: first what all of them see, then the rest row by row.
void PromptTile::Values(uint32_t segment) {
  const uint32_t tile_rows = std::max(1u, kTileVectors / group_);
  for (uint32_t row = 0; row < rows_;) {
    const uint32_t common = KeysIn(segment, row);
    const uint32_t end = std::min(rows_, row + tile_rows);
    AddValues(segment, {row, end, 0, common});
    for (; row < end; ++row) AddValues(segment, {row, row + 1, common, KeysIn(segment, row)});
  }
}

void PromptTile::AddValues(uint32_t segment, const ValueRange& range) {
  if (range.begin_key == range.end_key) return;
  const float* panels[kMaxHeadPanels];
  for (uint32_t d = 0; d < dim_; d += kPanel) {
    panels[d / kPanel] = &wide_[(d / kPanel * kSegment + range.begin_key) * kPanel];
  }
  const uint32_t first = range.first * group_;
  DensePanel<float> args;
  args.a = &scores_[first * kStride + range.begin_key];
  args.a_stride = kStride;
  args.runs = panels;
  args.panel_runs = 1;
  args.run = args.k = range.end_key - range.begin_key;
  args.b_stride = kPanel;
  args.rows = (range.end - range.first) * group_;
  args.cols = dim_;
  args.out = &(segment == 0 ? value_ : segment_value_)[first * dim_];
  args.out_stride = dim_;
  args.store = range.begin_key > 0 ? DenseStore::kContinue : DenseStore::kReplace;
  tier_.dense_float(args);
}

// Merges the segment's state into that of all before it.
void PromptTile::Join(uint32_t segment) {
  for (uint32_t v = 0; v < rows_ * group_; ++v) {
    if (KeysIn(segment, v / group_) == 0) continue;
    tier_.merge(&state_[v], &value_[v * dim_], segment_state_[v], &segment_value_[v * dim_], dim_);
  }
}

}  // namespace baton::kernels::cpu
