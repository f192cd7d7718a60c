// Vectors of an int8 KV cache (KvDtype::kInt8).
#ifndef BATON_KERNELS_CPU_KV_INT8_H_
#define BATON_KERNELS_CPU_KV_INT8_H_

#include <cstddef>
#include <cstdint>

#include "kv/layout.h"

namespace baton::kernels::cpu {

// q[i] = x[i] * 127 / a rounded to even, a being the largest magnitude; returns the scale a / 127.
// As activations do: all zero when a is below 2^-96, a NaN for scale when a value is not finite.
// The same code serves every tier.
float QuantizeVector(const float* x, uint32_t n, int8_t* q);

// Where the scales [kv_head][slot] of a piece begin: a multiple of 16.
inline size_t ScaleOffset(const kv::KvArenaSpec& spec, uint32_t block_size) {
  return size_t{spec.kv_heads} * spec.head_dim * block_size;
}

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_KV_INT8_H_
