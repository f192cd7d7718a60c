#include "kernels/cpu/attention_tile.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/kv_int8.h"

namespace baton::kernels::cpu {
namespace {

// Values are added in runs of so many keys, which stay in the first-level cache while one slice of
// the head after the other takes them.
constexpr uint32_t kValueRun = 128;
constexpr uint32_t kMaxBlocks = kValueRun / 16;

constexpr uint32_t kLine = 64;  // bytes

void RunDense(const Tier& tier, const DensePanel<uint16_t>& args) { tier.dense_half(args); }
void RunDense(const Tier& tier, const DensePanel<int8_t>& args) { tier.dense_int8(args); }

}  // namespace

AttentionTile::AttentionTile(const Tier& tier, const LayerCall& call, const AttentionItem& item)
    : tier_(tier),
      call_(call),
      item_(item),
      dim_(call.heads.head_dim),
      group_(call.heads.heads / call.heads.kv_heads),
      block_size_(call.kv.layout->block_size),
      table_(item.sequence->tables[call.kv.layout->layers[call.layer].group]),
      keys_(item.sequence->first_position + RowInSequence(item.queries - 1) + 1),
      streams_(item.queries == item.sequence->rows * group_),
      spec_(call.kv.layout->layers[call.layer].arenas[kv::kKeyArena]) {}

void AttentionTile::Run(const CpuActivation& qkv) {
  for (uint32_t q = 0; q < item_.queries; ++q) {
    const float* head = qkv.values(RowOf(q)) + size_t{HeadOf(q)} * dim_;
    std::memcpy(&query_[q * dim_], head, dim_ * sizeof(float));
  }
  spec_.dtype == kv::KvDtype::kInt8 ? RunSegments<int8_t>() : RunSegments<uint16_t>();
}

template <typename Stored>
void AttentionTile::RunSegments() {
  for (uint32_t segment = item_.first_segment; segment < item_.end_segment; ++segment) {
    Scores<Stored>(segment);
    Values<Stored>(segment);
    for (uint32_t q = 0; q < item_.queries; ++q) {
      if (KeysIn(segment, q) > 0) Join(q, segment == item_.first_segment);
    }
  }
}

void AttentionTile::Finish(CpuActivation& out) const {
  for (uint32_t q = 0; q < item_.queries; ++q) {
    float* to = out.values(RowOf(q)) + size_t{HeadOf(q)} * dim_;
    for (uint32_t i = 0; i < dim_; ++i) to[i] = value_[q * dim_ + i] / state_[q].sum;
  }
}

void AttentionTile::SavePartial() const {
  for (uint32_t q = 0; q < item_.queries; ++q) {
    float* to = item_.partial + q * PartialSize(dim_);
    std::memcpy(to, &state_[q], sizeof state_[q]);
    std::memcpy(to + 2, &value_[q * dim_], dim_ * sizeof(float));
  }
}

void AttentionTile::JoinPartial(const float* partial, uint32_t segment) {
  for (uint32_t q = 0; q < item_.queries; ++q) {
    if (KeysIn(segment, q) == 0) continue;
    const float* from = partial + q * PartialSize(dim_);
    std::memcpy(&segment_state_[q], from, sizeof segment_state_[q]);
    std::memcpy(&segment_value_[q * dim_], from + 2, dim_ * sizeof(float));
    Join(q, segment == 0);
  }
}

// How many keys of `segment` query q sees: those up to its own position.
uint32_t AttentionTile::KeysIn(uint32_t segment, uint32_t q) const {
  const uint32_t keys = item_.sequence->first_position + RowInSequence(q) + 1;
  const uint32_t before = segment * kSegment;
  return keys > before ? std::min(keys - before, kSegment) : 0;
}

// 16 keys, dimension by dimension, block_size apart.
template <typename Stored>
const Stored* AttentionTile::KeyPanel(uint32_t key) const {
  const auto* piece = reinterpret_cast<const Stored*>(Piece(kv::kKeyArena, key));
  return piece + size_t{item_.kv_head} * dim_ * block_size_ + key % block_size_;
}

template <typename Stored>
const Stored* AttentionTile::ValueRow(uint32_t key) const {
  const auto* piece = reinterpret_cast<const Stored*>(Piece(kv::kValueArena, key));
  return piece + (size_t{item_.kv_head} * block_size_ + key % block_size_) * dim_;
}

// Those of the 16 keys from `key` on.
template <typename Stored>
void AttentionTile::PrefetchKeys(uint32_t key) const {
  if (key >= keys_) return;
  const Stored* panel = KeyPanel<Stored>(key);
  const auto step = std::max<uint32_t>(1, kLine / (block_size_ * sizeof(Stored)));
  for (uint32_t d = 0; d < dim_; d += step) {
    __builtin_prefetch(panel + size_t{d} * block_size_, 0, 2);
  }
}

template <typename Stored>
void AttentionTile::PrefetchValues(uint32_t key) const {
  if (key >= keys_) return;
  const Stored* row = ValueRow<Stored>(key);
  for (uint32_t i = 0; i < kPanel * dim_; i += kLine / sizeof(Stored)) {
    __builtin_prefetch(row + i, 0, 2);
  }
}

// scores_[q][key] = exp(scaled score - max) for the keys that q sees; other entries hold anything
// and are never used.
template <typename Stored>
void AttentionTile::Scores(uint32_t segment) {
  const uint32_t first_key = segment * kSegment;
  const uint32_t keys = KeysIn(segment, item_.queries - 1);
  for (uint32_t key = 0; key < keys; key += kPanel) {
    if (streams_) {
      PrefetchKeys<Stored>(first_key + key + kPanel);
      PrefetchValues<Stored>(first_key + key);
    }
    const Stored* run = KeyPanel<Stored>(first_key + key);
    DensePanel<Stored> args;
    args.a = query_;
    args.a_stride = dim_;
    args.runs = &run;
    args.run = args.k = dim_;
    args.b_stride = block_size_;
    args.rows = item_.queries;
    args.out = &scores_[key];
    args.out_stride = kSegment;
    RunDense(tier_, args);
  }
  if constexpr (sizeof(Stored) == 1) Scale(segment, kv::kKeyArena);
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim_));
  for (uint32_t q = 0; q < item_.queries; ++q) {
    const uint32_t count = KeysIn(segment, q);
    if (count > 0) segment_state_[q] = tier_.softmax(&scores_[q * kSegment], count, scale);
  }
}

void AttentionTile::Scale(uint32_t segment, uint32_t arena) {
  const size_t head =
      ScaleOffset(spec_, block_size_) + size_t{item_.kv_head} * block_size_ * sizeof(float);
  const uint32_t keys = KeysIn(segment, item_.queries - 1);
  for (uint32_t key = 0; key < keys; key += kPanel) {
    const uint32_t absolute = segment * kSegment + key;
    const auto* scales =
        reinterpret_cast<const float*>(Piece(arena, absolute) + head) + absolute % block_size_;
    for (uint32_t q = 0; q < item_.queries; ++q) {
      float* numbers = &scores_[q * kSegment + key];
      const uint32_t seen = KeysIn(segment, q);
      if (seen >= key + kPanel) {
        for (uint32_t i = 0; i < kPanel; ++i) numbers[i] *= scales[i];
      } else {
        for (uint32_t i = 0; key + i < seen; ++i) numbers[i] *= scales[i];
      }
    }
  }
}

// segment_value_[q] = sum of p * value over the keys that q sees, ascending. What all queries see
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
    const uint32_t run = in_block == 0 ? kValueRun : std::min(kValueRun, block_size_ - in_block);
    const uint32_t end = std::min(range.end, begin + run);
    if (streams_) {
      for (uint32_t key = begin; key < end; key += kPanel) {
        PrefetchKeys<Stored>((range.segment + 1) * kSegment + key);
      }
    }
    AddRun<Stored>({range.segment, range.first, range.last, begin, end});
    begin = end;
  }
}

// The sums start at key 0.
template <typename Stored>
void AttentionTile::AddRun(const ValueRange& range) {
  const Stored* blocks[kMaxBlocks];
  uint32_t count = 0;
  for (uint32_t key = range.begin; key < range.end; key += block_size_) {
    blocks[count++] = ValueRow<Stored>(range.segment * kSegment + key);
  }
  DensePanel<Stored> args;
  args.a = &scores_[range.first * kSegment + range.begin];
  args.a_stride = kSegment;
  args.run = block_size_;
  args.b_stride = dim_;
  args.rows = range.last - range.first;
  args.k = range.end - range.begin;
  args.out_stride = dim_;
  args.store = range.begin > 0 ? DenseStore::kContinue : DenseStore::kReplace;
  for (uint32_t d = 0; d < dim_; d += kPanel) {
    const Stored* runs[kMaxBlocks];
    for (uint32_t i = 0; i < count; ++i) runs[i] = blocks[i] + d;
    args.runs = runs;
    args.cols = std::min(kPanel, dim_ - d);
    args.out = &segment_value_[range.first * dim_ + d];
    RunDense(tier_, args);
  }
}

// Merges the segment's state of query q into its state.
void AttentionTile::Join(uint32_t q, bool is_first) {
  if (is_first) {
    state_[q] = segment_state_[q];
    std::memcpy(&value_[q * dim_], &segment_value_[q * dim_], dim_ * sizeof(float));
  } else {
    tier_.merge(&state_[q], &value_[q * dim_], segment_state_[q], &segment_value_[q * dim_], dim_);
  }
}

}  // namespace baton::kernels::cpu
