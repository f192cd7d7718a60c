// Where the keys and values of one sequence lie in one layer.
#ifndef BATON_KERNELS_CPU_STORED_KV_H_
#define BATON_KERNELS_CPU_STORED_KV_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "kernels/cpu/kv_int8.h"

namespace baton::kernels::cpu {

// Refers to the call and the sequence. Keys are numbered by absolute position.
class StoredKv {
 public:
  StoredKv(const LayerCall& call, const SequenceRows& sequence)
      : call_(call),
        block_size_(call.kv.layout->block_size),
        table_(sequence.tables[call.kv.layout->layers[call.layer].group]),
        spec_(call.kv.layout->layers[call.layer].arenas[kv::kKeyArena]) {}

  uint32_t block_size() const { return block_size_; }
  bool int8() const { return spec_.dtype == kv::KvDtype::kInt8; }

  // Of keys, a dimension of 16 keys, block_size apart from the next dimension; of values, all
  // dimensions of one key. Stored: uint16_t for halves, int8_t for bytes.
  template <typename Stored>
  const Stored* At(uint32_t arena, uint32_t key, uint32_t kv_head) const {
    const auto* piece = reinterpret_cast<const Stored*>(Piece(arena, key));
    const size_t before = size_t{kv_head} * block_size_ * spec_.head_dim;
    const size_t slot = key % block_size_;
    return piece + before + (arena == kv::kKeyArena ? slot : slot * spec_.head_dim);
  }

  // Of bytes: the scales from a key on, to the end of its block.
  const float* ScalesAt(uint32_t arena, uint32_t key, uint32_t kv_head) const {
    const auto* scales =
        reinterpret_cast<const float*>(Piece(arena, key) + ScaleOffset(spec_, block_size_));
    return scales + size_t{kv_head} * block_size_ + key % block_size_;
  }

 private:
  const std::byte* Piece(uint32_t arena, uint32_t key) const {
    return call_.kv.Piece(call_.layer, arena, table_[key / block_size_]);
  }

  const LayerCall& call_;
  const uint32_t block_size_;
  const std::span<const kv::BlockId> table_;
  const kv::KvArenaSpec& spec_;
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_STORED_KV_H_
