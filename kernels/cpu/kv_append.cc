#include "kernels/cpu/kv_append.h"

#include <algorithm>

#include "common/check.h"

namespace baton::kernels::cpu {
namespace {

constexpr uint32_t kMaxHeadDim = 256;

}  // namespace

KvAppend::KvAppend(const Tier& tier, const LayerCall& call, const CpuRope& rope, CpuActivation& qkv)
    : tier_(tier),
      shape_(call.heads),
      rope_(rope),
      qkv_(qkv),
      block_size_(call.kv.layout->block_size) {
  BATON_CHECK(shape_.head_dim <= kMaxHeadDim && qkv.cols() == shape_.qkv_cols());
  places_.reserve(call.batch.rows);
  for (const SequenceRows& sequence : call.batch.sequences) {
    const auto& table = sequence.tables[call.kv.layout->layers[call.layer].group];
    for (uint32_t row = 0; row < sequence.rows; ++row) {
      const uint32_t position = sequence.first_position + row;
      const kv::BlockId block = table[position / block_size_];
      const auto piece = [&](uint32_t arena) {
        return reinterpret_cast<uint16_t*>(call.kv.Piece(call.layer, arena, block));
      };
      places_.push_back({position, piece(kv::kKeyArena), piece(kv::kValueArena)});
    }
  }
  BATON_CHECK(places_.size() == call.batch.rows);
}

void KvAppend::Run(uint32_t head, uint32_t begin, uint32_t end) const {
  const uint32_t first_value_head = shape_.heads + shape_.kv_heads;
  for (uint32_t row = begin; row < end; ++row) {
    const Place& place = places_[row];
    float* x = qkv_.values(row) + size_t{head} * shape_.head_dim;
    if (head < first_value_head) rope_.Rotate(place.position, x);
    if (head >= first_value_head) {
      StoreValue(place, head - first_value_head, x);
    } else if (head >= shape_.heads) {
      StoreKey(place, head - shape_.heads, x);
    }
  }
}

void KvAppend::StoreKey(const Place& place, uint32_t kv_head, const float* key) const {
  const uint32_t dim = shape_.head_dim;
  uint16_t halves[kMaxHeadDim];
  tier_.to_half(key, dim, halves);
  uint16_t* to = place.keys + size_t{kv_head} * dim * block_size_ + place.position % block_size_;
  for (uint32_t d = 0; d < dim; ++d) to[size_t{d} * block_size_] = halves[d];
}

void KvAppend::StoreValue(const Place& place, uint32_t kv_head, const float* value) const {
  const size_t slot = size_t{kv_head} * block_size_ + place.position % block_size_;
  tier_.to_half(value, shape_.head_dim, place.values + slot * shape_.head_dim);
}

AppendEpilogue::AppendEpilogue(const KvAppend& append, Countdowns& heads)
    : append_(append), heads_(heads) {
  const size_t tiles = (append.rows() + kTileRows - 1) / kTileRows;
  heads.Reset(tiles * append.heads(), append.head_dim());
}

// Outputs and heads need not end together.
void AppendEpilogue::Finished(Rows rows, uint32_t begin, uint32_t end) {
  const uint32_t dim = append_.head_dim();
  for (uint32_t head = begin / dim; head * dim < end; ++head) {
    const uint32_t outputs = std::min(end, (head + 1) * dim) - std::max(begin, head * dim);
    if (!heads_.Finish(size_t{rows.tile()} * append_.heads() + head, outputs)) continue;
    append_.Run(head, rows.first, rows.first + rows.count);
  }
}

}  // namespace baton::kernels::cpu
