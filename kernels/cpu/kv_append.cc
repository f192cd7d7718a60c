#include "kernels/cpu/kv_append.h"

#include <algorithm>

#include "common/check.h"

namespace baton::kernels::cpu {
namespace {

// One row of one sequence: where it goes and what it holds.
class RowWriter {
 public:
  RowWriter(const Tier& tier, const LayerCall& call, const SequenceRows& sequence, uint32_t row)
      : tier_(tier), dim_(call.shape.head_dim), block_size_(call.kv.layout->block_size) {
    const uint32_t position = sequence.first_position + row;
    const auto& table = sequence.tables[call.kv.layout->layers[call.layer].group];
    const kv::BlockId block = table[position / block_size_];
    slot_ = position % block_size_;
    key_ = reinterpret_cast<uint16_t*>(call.kv.Piece(call.layer, kv::kKeyArena, block));
    value_ = reinterpret_cast<uint16_t*>(call.kv.Piece(call.layer, kv::kValueArena, block));
  }

  // [kv_head][head_dim][slot]
  void WriteKey(uint32_t kv_head, const float* key) const {
    uint16_t halves[kMaxDim];
    tier_.to_half(key, dim_, halves);
    uint16_t* to = key_ + size_t{kv_head} * dim_ * block_size_ + slot_;
    for (uint32_t d = 0; d < dim_; ++d) to[size_t{d} * block_size_] = halves[d];
  }

  // [kv_head][slot][head_dim]
  void WriteValue(uint32_t kv_head, const float* value) const {
    tier_.to_half(value, dim_, value_ + (size_t{kv_head} * block_size_ + slot_) * dim_);
  }

  static constexpr uint32_t kMaxDim = 256;

 private:
  const Tier& tier_;
  const uint32_t dim_;
  const uint32_t block_size_;
  uint32_t slot_ = 0;
  uint16_t* key_ = nullptr;
  uint16_t* value_ = nullptr;
};

void AppendRow(const Tier& tier, const LayerCall& call, const CpuRope& rope,
               const SequenceRows& sequence, uint32_t row, CpuActivation& qkv) {
  const HeadShape& shape = call.shape;
  const uint32_t position = sequence.first_position + row;
  float* head = qkv.values(sequence.first_row + row);
  for (uint32_t h = 0; h < shape.heads + shape.kv_heads; ++h) {
    rope.Rotate(position, head + size_t{h} * shape.head_dim);
  }
  const RowWriter writer(tier, call, sequence, row);
  const float* key = head + size_t{shape.heads} * shape.head_dim;
  const float* value = key + size_t{shape.kv_heads} * shape.head_dim;
  for (uint32_t h = 0; h < shape.kv_heads; ++h) {
    writer.WriteKey(h, key + size_t{h} * shape.head_dim);
    writer.WriteValue(h, value + size_t{h} * shape.head_dim);
  }
}

}  // namespace

void RunRopeAppend(const Tier& tier, ThreadPool& pool, const LayerCall& call, const CpuRope& rope,
                   CpuActivation& qkv) {
  BATON_CHECK(call.shape.head_dim <= RowWriter::kMaxDim);
  // A row costs about a microsecond: fewer than eight are not worth waking a thread.
  pool.ForRange(call.batch.rows, 8, [&](uint32_t begin, uint32_t end) {
    for (const SequenceRows& sequence : call.batch.sequences) {
      const uint32_t first = std::max(begin, sequence.first_row);
      const uint32_t last = std::min(end, sequence.first_row + sequence.rows);
      for (uint32_t row = first; row < last; ++row) {
        AppendRow(tier, call, rope, sequence, row - sequence.first_row, qkv);
      }
    }
  });
}

}  // namespace baton::kernels::cpu
