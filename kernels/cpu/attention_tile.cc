#include "kernels/cpu/attention_tile.h"

#include <algorithm>
#include <cstring>

namespace baton::kernels::cpu {
namespace {

// Keys whose scores one call of a kernel makes, or whose values it adds: some register tiles. One
// head after the other takes them, then come the next. While a run is worked on, memory is asked
// for the one that follows.
constexpr uint32_t kRun = 4 * kPanel;
constexpr uint32_t kMaxBlocks = kRun / 16;
constexpr uint32_t kMaxHeadPanels = kMaxHeadDim / kPanel;

void RunDense(const Tier& tier, const DensePanel<uint16_t>& args) { tier.dense_half(args); }
void RunDense(const Tier& tier, const DensePanel<int8_t>& args) { tier.dense_int8(args); }

}  // namespace

AttentionTile::AttentionTile(const Tier& tier, const LayerCall& call, const AttentionItem& item)
    : tier_(tier),
      item_(item),
      kv_(call, *item.sequence),
      dim_(call.heads.head_dim),
      group_(call.heads.heads / call.heads.kv_heads),
      block_size_(kv_.block_size()) {
  for (uint32_t v = 0; v < item.vectors(); ++v) {
    seen_[v] = item.sequence->first_position + RowInSequence(v) + 1;
  }
}

void AttentionTile::Run(const CpuActivation& qkv) {
  for (uint32_t v = 0; v < item_.vectors(); ++v) {
    const float* head = qkv.values(RowOf(v)) + size_t{HeadOf(v)} * dim_;
    std::memcpy(&query_[v * dim_], head, dim_ * sizeof(float));
  }
  kv_.int8() ? RunSegments<int8_t>() : RunSegments<uint16_t>();
}

template <typename Stored>
void AttentionTile::RunSegments() {
  for (uint32_t segment = item_.first_segment; segment < item_.end_segment; ++segment) {
    Scores<Stored>(segment);
    Values<Stored>(segment);
    for (uint32_t v = 0; v < item_.vectors(); ++v) {
      if (KeysIn(segment, v) > 0) Join(v, segment == item_.first_segment);
    }
  }
}

void AttentionTile::Finish(CpuActivation& out) const {
  for (uint32_t v = 0; v < item_.vectors(); ++v) {
    float* __restrict to = out.values(RowOf(v)) + size_t{HeadOf(v)} * dim_;
    const float* from = &value_[v * dim_];
    const float sum = state_[v].sum;
    for (uint32_t i = 0; i < dim_; ++i) to[i] = from[i] / sum;
  }
}

void AttentionTile::SavePartial() const {
  for (uint32_t v = 0; v < item_.vectors(); ++v) {
    float* to = item_.partial + v * PartialSize(dim_);
    std::memcpy(to, &state_[v], sizeof state_[v]);
    std::memcpy(to + 2, &value_[v * dim_], dim_ * sizeof(float));
  }
}

void AttentionTile::JoinPartial(const float* partial, uint32_t segment) {
  for (uint32_t v = 0; v < item_.vectors(); ++v) {
    if (KeysIn(segment, v) == 0) continue;
    const float* from = partial + v * PartialSize(dim_);
    std::memcpy(&segment_state_[v], from, sizeof segment_state_[v]);
    std::memcpy(&segment_value_[v * dim_], from + 2, dim_ * sizeof(float));
    Join(v, segment == 0);
  }
}

// A segment's keys are followed by its values, these by the next segment's keys. The end repeats
// itself, which costs nothing.
template <typename Stored>
const Stored* AttentionTile::Ahead(uint32_t arena, uint32_t key, uint32_t head) const {
  const uint32_t segment = key / kSegment;
  const uint32_t runs = (KeysIn(segment, 0) + kRun - 1) / kRun;
  uint32_t next = key + kRun;
  if (next >= segment * kSegment + runs * kRun) {
    next = arena == kv::kKeyArena ? next - runs * kRun : (segment + 1) * kSegment + key % kRun;
    arena = arena == kv::kKeyArena ? kv::kValueArena : kv::kKeyArena;
  }
  return At<Stored>(arena, std::min(next, seen_[0] - 1), head);
}

// scores_[v][key] = exp(scaled score - max) for the keys that v sees; other entries hold anything
// and are never used.
template <typename Stored>
void AttentionTile::Scores(uint32_t segment) {
  const uint32_t keys = KeysIn(segment, item_.queries - 1);
  for (uint32_t key = 0; key < keys; key += kRun) {
    for (uint32_t head = 0; head < item_.kv_heads; ++head) AddScores<Stored>(segment, key, head);
  }
  if constexpr (sizeof(Stored) == 1) Scale(segment, kv::kKeyArena);
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim_));
  for (uint32_t v = 0; v < item_.vectors(); ++v) {
    const uint32_t count = KeysIn(segment, v);
    if (count > 0) segment_state_[v] = tier_.softmax(&scores_[v * kSegment], count, scale);
  }
}

// Of the keys of a run from `key` on, rounded up to whole panels.
template <typename Stored>
void AttentionTile::AddScores(uint32_t segment, uint32_t key, uint32_t head) {
  const uint32_t keys = std::min(kRun, KeysIn(segment, item_.queries - 1) - key);
  const Stored* panels[kRun / kPanel];
  const Stored* ahead[kRun / kPanel];
  DensePanel<Stored> args;
  args.cols = 0;
  for (; args.cols < keys; args.cols += kPanel) {
    const uint32_t absolute = segment * kSegment + key + args.cols;
    panels[args.cols / kPanel] = At<Stored>(kv::kKeyArena, absolute, head);
    ahead[args.cols / kPanel] = Ahead<Stored>(kv::kKeyArena, absolute, head);
    if constexpr (sizeof(Stored) == 1) {  // its scales lie apart, and are wanted with the last key
      __builtin_prefetch(ScalesAt(kv::kKeyArena, absolute, head));
      __builtin_prefetch(ScalesAt(kv::kValueArena, absolute, head));
    }
  }
  args.a = &query_[head * item_.queries * dim_];
  args.a_stride = dim_;
  args.runs = panels;
  args.ahead = ahead;
  args.panel_runs = 1;
  args.run = args.k = dim_;
  args.b_stride = block_size_;
  args.rows = item_.queries;
  args.out = &scores_[head * item_.queries * kSegment + key];
  args.out_stride = kSegment;
  RunDense(tier_, args);
}

void AttentionTile::Scale(uint32_t segment, uint32_t arena) {
  const uint32_t keys = KeysIn(segment, item_.queries - 1);
  for (uint32_t key = 0; key < keys; key += kPanel) {
    for (uint32_t head = 0; head < item_.kv_heads; ++head) {
      ScalePanel(segment, key, ScalesAt(arena, segment * kSegment + key, head), head);
    }
  }
}

void AttentionTile::ScalePanel(uint32_t segment, uint32_t key, const float* scales, uint32_t head) {
  for (uint32_t q = 0; q < item_.queries; ++q) {
    float* numbers = &scores_[(head * item_.queries + q) * kSegment + key];
    const uint32_t seen = KeysIn(segment, q);
    if (seen >= key + kPanel) {
      for (uint32_t i = 0; i < kPanel; ++i) numbers[i] *= scales[i];
    } else {
      for (uint32_t i = 0; key + i < seen; ++i) numbers[i] *= scales[i];
    }
  }
}

// segment_value_[v] = sum of p * value over the keys that v sees, ascending. What all queries see
// is taken together; the rest, at most as many keys as the tile has rows, row by row.
template <typename Stored>
void AttentionTile::Values(uint32_t segment) {
  if constexpr (sizeof(Stored) == 1) Scale(segment, kv::kValueArena);
  const uint32_t common = KeysIn(segment, 0);
  if (common > 0) AddValues<Stored>({segment, 0, item_.queries, 0, common});
  for (uint32_t q = 0; q < item_.queries;) {
    uint32_t end = q + 1;
    while (end < item_.queries && RowInSequence(end) == RowInSequence(q)) ++end;
    AddValues<Stored>({segment, q, end, common, KeysIn(segment, q)});
    q = end;
  }
}

template <typename Stored>
void AttentionTile::AddValues(const ValueRange& range) {
  for (uint32_t begin = range.begin; begin < range.end;) {
    // A run begins where a block does, or ends with its block.
    const uint32_t in_block = (range.segment * kSegment + begin) % block_size_;
    const uint32_t run = in_block == 0 ? kRun : std::min(kRun, block_size_ - in_block);
    const uint32_t end = std::min(range.end, begin + run);
    for (uint32_t head = 0; head < item_.kv_heads; ++head) {
      AddRun<Stored>({range.segment, range.first, range.last, begin, end}, head);
    }
    begin = end;
  }
}

// The sums start at key 0.
template <typename Stored>
void AttentionTile::AddRun(const ValueRange& range, uint32_t head) {
  const Stored* runs[kMaxHeadPanels * kMaxBlocks];
  const Stored* ahead[kMaxHeadPanels * kMaxBlocks];
  const uint32_t panels = (dim_ + kPanel - 1) / kPanel;
  uint32_t block = 0;
  for (uint32_t key = range.begin; key < range.end; key += block_size_, ++block) {
    const uint32_t absolute = range.segment * kSegment + key;
    const Stored* row = At<Stored>(kv::kValueArena, absolute, head);
    const Stored* next = Ahead<Stored>(kv::kValueArena, absolute, head);
    for (uint32_t p = 0; p < panels; ++p) {
      runs[p * kMaxBlocks + block] = row + p * kPanel;
      ahead[p * kMaxBlocks + block] = next + p * kPanel;
    }
  }
  const uint32_t first = head * item_.queries + range.first;
  DensePanel<Stored> args;
  args.a = &scores_[first * kSegment + range.begin];
  args.a_stride = kSegment;
  args.runs = runs;
  args.ahead = ahead;
  args.panel_runs = kMaxBlocks;
  args.run = block_size_;
  args.b_stride = dim_;
  args.rows = range.last - range.first;
  args.k = range.end - range.begin;
  args.cols = dim_;
  args.out = &segment_value_[first * dim_];
  args.out_stride = dim_;
  args.store = range.begin > 0 ? DenseStore::kContinue : DenseStore::kReplace;
  RunDense(tier_, args);
}

// Merges the segment's state of vector v into its state.
void AttentionTile::Join(uint32_t v, bool is_first) {
  if (is_first) {
    state_[v] = segment_state_[v];
    std::memcpy(&value_[v * dim_], &segment_value_[v * dim_], dim_ * sizeof(float));
  } else {
    tier_.merge(&state_[v], &value_[v * dim_], segment_state_[v], &segment_value_[v * dim_], dim_);
  }
}

}  // namespace baton::kernels::cpu
