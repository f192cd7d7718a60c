#include "kernels/cpu/attention_tile.h"

#include <algorithm>
#include <cstring>

namespace baton::kernels::cpu {
namespace {

// Values are added in runs of so many keys, which stay in the first-level cache while one slice of
// the head after the other takes them.
constexpr uint32_t kValueRun = 128;
constexpr uint32_t kMaxBlocks = kValueRun / 16;

const uint16_t* Halves(const std::byte* p) { return reinterpret_cast<const uint16_t*>(p); }

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
      streams_(item.queries == item.sequence->rows * group_) {}

void AttentionTile::Run(const CpuActivation& qkv) {
  for (uint32_t q = 0; q < item_.queries; ++q) {
    const float* head = qkv.values(RowOf(q)) + size_t{HeadOf(q)} * dim_;
    std::memcpy(&query_[q * dim_], head, dim_ * sizeof(float));
  }
  for (uint32_t segment = item_.first_segment; segment < item_.end_segment; ++segment) {
    Scores(segment);
    Values(segment);
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
const uint16_t* AttentionTile::KeyPanel(uint32_t key) const {
  const std::byte* piece = call_.kv.Piece(call_.layer, kv::kKeyArena, table_[key / block_size_]);
  return Halves(piece) + size_t{item_.kv_head} * dim_ * block_size_ + key % block_size_;
}

const uint16_t* AttentionTile::ValueRow(uint32_t key) const {
  const std::byte* piece = call_.kv.Piece(call_.layer, kv::kValueArena, table_[key / block_size_]);
  return Halves(piece) + (size_t{item_.kv_head} * block_size_ + key % block_size_) * dim_;
}

// Those of the 16 keys from `key` on.
void AttentionTile::PrefetchKeys(uint32_t key) const {
  if (key >= keys_) return;
  const uint16_t* panel = KeyPanel(key);
  const uint32_t step = std::max(1u, 32 / block_size_);
  for (uint32_t d = 0; d < dim_; d += step) {
    __builtin_prefetch(panel + size_t{d} * block_size_, 0, 2);
  }
}

void AttentionTile::PrefetchValues(uint32_t key) const {
  if (key >= keys_) return;
  const uint16_t* row = ValueRow(key);
  for (uint32_t i = 0; i < kPanel * dim_; i += 32) __builtin_prefetch(row + i, 0, 2);
}

// scores_[q][key] = exp(scaled score - max) for the keys that q sees; other entries hold anything
// and are never used.
void AttentionTile::Scores(uint32_t segment) {
  const uint32_t first_key = segment * kSegment;
  const uint32_t keys = KeysIn(segment, item_.queries - 1);
  for (uint32_t key = 0; key < keys; key += kPanel) {
    if (streams_) {
      PrefetchKeys(first_key + key + kPanel);
      PrefetchValues(first_key + key);
    }
    const uint16_t* run = KeyPanel(first_key + key);
    DensePanel<uint16_t> args;
    args.a = query_;
    args.a_stride = dim_;
    args.runs = &run;
    args.run = args.k = dim_;
    args.b_stride = block_size_;
    args.rows = item_.queries;
    args.out = &scores_[key];
    args.out_stride = kSegment;
    tier_.dense_half(args);
  }
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim_));
  for (uint32_t q = 0; q < item_.queries; ++q) {
    const uint32_t count = KeysIn(segment, q);
    if (count > 0) segment_state_[q] = tier_.softmax(&scores_[q * kSegment], count, scale);
  }
}

// segment_value_[q] = sum of p * value over the keys that q sees, ascending. What all queries see
// is taken together; the rest, at most as many keys as the tile has rows, row by row.
void AttentionTile::Values(uint32_t segment) {
  const uint32_t common = KeysIn(segment, 0);
  if (common > 0) AddValues(segment, 0, item_.queries, 0, common);
  for (uint32_t q = 0; q < item_.queries;) {
    uint32_t end = q + 1;
    while (end < item_.queries && RowInSequence(end) == RowInSequence(q)) ++end;
    AddValues(segment, q, end, common, KeysIn(segment, q));
    q = end;
  }
}

// Adds keys [begin, end) of the segment to queries [first, last). The sums start at key 0.
void AttentionTile::AddValues(uint32_t segment, uint32_t first, uint32_t last, uint32_t begin,
                              uint32_t end) {
  while (begin < end) {
    // A run begins where a block does, or ends with its block.
    const uint32_t in_block = (segment * kSegment + begin) % block_size_;
    const uint32_t run = in_block == 0 ? kValueRun : std::min(kValueRun, block_size_ - in_block);
    const uint32_t stop = std::min(end, begin + run);
    if (streams_) {
      for (uint32_t key = begin; key < stop; key += kPanel) {
        PrefetchKeys((segment + 1) * kSegment + key);
      }
    }
    AddRuns(segment, first, last, begin, stop);
    begin = stop;
  }
}

void AttentionTile::AddRuns(uint32_t segment, uint32_t first, uint32_t last, uint32_t begin,
                            uint32_t end) {
  const uint16_t* blocks[kMaxBlocks];
  uint32_t count = 0;
  for (uint32_t key = begin; key < end; key += block_size_) {
    blocks[count++] = ValueRow(segment * kSegment + key);
  }
  DensePanel<uint16_t> args;
  args.a = &scores_[first * kSegment + begin];
  args.a_stride = kSegment;
  args.run = block_size_;
  args.b_stride = dim_;
  args.rows = last - first;
  args.k = end - begin;
  args.out_stride = dim_;
  args.store = begin > 0 ? DenseStore::kContinue : DenseStore::kReplace;
  for (uint32_t d = 0; d < dim_; d += kPanel) {
    const uint16_t* runs[kMaxBlocks];
    for (uint32_t i = 0; i < count; ++i) runs[i] = blocks[i] + d;
    args.runs = runs;
    args.cols = std::min(kPanel, dim_ - d);
    args.out = &segment_value_[first * dim_ + d];
    tier_.dense_half(args);
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
