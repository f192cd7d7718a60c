#include "kernels/cpu/kv_append.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/cpu/kv_int8.h"

namespace baton::kernels::cpu {
namespace {

constexpr uint32_t kMaxHeadDim = 256;

// Of keys; values have the same dtype and shape.
const kv::KvArenaSpec& SpecOf(const LayerCall& call) {
  return call.kv.layout->layers[call.layer].arenas[kv::kKeyArena];
}

}  // namespace

KvAppend::KvAppend(const Tier& tier, const LayerCall& call, const CpuRope& rope, CpuActivation& qkv)
    : tier_(tier),
      shape_(call.heads),
      rope_(rope),
      qkv_(qkv),
      block_size_(call.kv.layout->block_size),
      int8_(SpecOf(call).dtype == kv::KvDtype::kInt8),
      scale_offset_(ScaleOffset(SpecOf(call), block_size_)) {
  BATON_CHECK(shape_.head_dim <= kMaxHeadDim && qkv.cols() == shape_.qkv_cols());
  places_.reserve(call.batch.rows);
  for (const SequenceRows& sequence : call.batch.sequences) {
    const auto& table = sequence.tables[call.kv.layout->layers[call.layer].group];
    for (uint32_t row = 0; row < sequence.rows; ++row) {
      const uint32_t position = sequence.first_position + row;
      const kv::BlockId block = table[position / block_size_];
      places_.push_back({position, call.kv.Piece(call.layer, kv::kKeyArena, block),
                         call.kv.Piece(call.layer, kv::kValueArena, block)});
    }
  }
  BATON_CHECK(places_.size() == call.batch.rows);
}

void KvAppend::Run(uint32_t head, uint32_t begin, uint32_t end) const {
  const uint32_t first_value_head = shape_.heads + shape_.kv_heads;
  const bool is_key = head < first_value_head;
  for (uint32_t row = begin; row < end; ++row) {
    const Place& place = places_[row];
    float* x = qkv_.values(row) + size_t{head} * shape_.head_dim;
    if (is_key) rope_.Rotate(tier_, place.position, x);
    if (head < shape_.heads) continue;
    const uint32_t kv_head = head - (is_key ? shape_.heads : first_value_head);
    int8_ ? StoreInt8(place, kv_head, x, is_key) : StoreHalves(place, kv_head, x, is_key);
  }
}

void KvAppend::StoreHalves(const Place& place, uint32_t kv_head, const float* x,
                           bool is_key) const {
  const uint32_t dim = shape_.head_dim;
  const uint32_t slot = place.position % block_size_;
  if (!is_key) {
    auto* to = reinterpret_cast<uint16_t*>(place.values);
    tier_.to_half(x, dim, to + (size_t{kv_head} * block_size_ + slot) * dim);
    return;
  }
  uint16_t halves[kMaxHeadDim];
  tier_.to_half(x, dim, halves);
  uint16_t* to = reinterpret_cast<uint16_t*>(place.keys) + size_t{kv_head} * dim * block_size_;
  for (uint32_t d = 0; d < dim; ++d) to[size_t{d} * block_size_ + slot] = halves[d];
}

void KvAppend::StoreInt8(const Place& place, uint32_t kv_head, const float* x, bool is_key) const {
  const uint32_t dim = shape_.head_dim;
  const size_t slot = place.position % block_size_;
  const size_t head = size_t{kv_head} * block_size_;
  std::byte* piece = is_key ? place.keys : place.values;
  auto* to = reinterpret_cast<int8_t*>(piece) + head * dim;
  float& scale = reinterpret_cast<float*>(piece + scale_offset_)[head + slot];
  if (!is_key) {
    scale = QuantizeVector(x, dim, to + slot * dim);
    return;
  }
  int8_t bytes[kMaxHeadDim];
  scale = QuantizeVector(x, dim, bytes);
  for (uint32_t d = 0; d < dim; ++d) to[size_t{d} * block_size_ + slot] = bytes[d];
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
