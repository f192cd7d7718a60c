// Rotation of queries and keys, and the writing of keys and values into blocks.
#ifndef BATON_KERNELS_CPU_KV_APPEND_H_
#define BATON_KERNELS_CPU_KV_APPEND_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/countdown.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

// Finishes heads of the projections q, k, v of one layer: rotates q in place, stores k, rotated,
// and v. Threads may run different heads or rows at the same time.
class KvAppend {
 public:
  KvAppend(const Tier& tier, const LayerCall& call, const CpuRope& rope, CpuActivation& qkv);

  // Head `head` of q, then k, then v heads, of rows [begin, end).
  void Run(uint32_t head, uint32_t begin, uint32_t end) const;
  uint32_t heads() const { return shape_.heads + 2 * shape_.kv_heads; }
  uint32_t head_dim() const { return shape_.head_dim; }
  uint32_t rows() const { return static_cast<uint32_t>(places_.size()); }

 private:
  // Where a row's key and value go.
  struct Place {
    uint32_t position;
    std::byte* keys;    // piece [kv_head][head_dim][slot]
    std::byte* values;  // piece [kv_head][slot][head_dim]
  };
  void StoreHalves(const Place& place, uint32_t kv_head, const float* x, bool is_key) const;
  void StoreInt8(const Place& place, uint32_t kv_head, const float* x, bool is_key) const;

  const Tier& tier_;
  const HeadShape shape_;
  const CpuRope& rope_;
  CpuActivation& qkv_;
  const uint32_t block_size_;
  const bool int8_;
  const size_t scale_offset_;  // int8: bytes from the beginning of a piece
  std::vector<Place> places_;  // [row]
};

// Finishes a head of a tile of rows when its last output is there.
class AppendEpilogue final : public LinearEpilogue {
 public:
  // `heads` is memory that several calls use one after the other.
  AppendEpilogue(const KvAppend& append, Countdowns& heads);
  void Finished(Rows rows, uint32_t begin, uint32_t end) override;

 private:
  const KvAppend& append_;
  Countdowns& heads_;  // [tile][head]
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_KV_APPEND_H_
