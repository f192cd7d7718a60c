// Kernels that sum in whatever order is fastest: what the fixed order of docs/numerics.md, and with
// it the invariant, is measured against. Only benchmarks have them. Plain types only, as in tier.h.
#ifndef BATON_BENCHMARKS_FREE_ORDER_H_
#define BATON_BENCHMARKS_FREE_ORDER_H_

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/tier.h"

namespace baton::benchmarks {

// The queries that share a key head, and their width, in the model that is measured.
inline constexpr uint32_t kFreeGroup = 3;
inline constexpr uint32_t kFreeDim = 64;
inline constexpr uint32_t kFreeBlock = 16;  // slots

// Keys of one key head, read by one row's queries.
struct FreeKeys {
  const float* queries = nullptr;           // [kFreeGroup][kFreeDim]
  const uint16_t* const* blocks = nullptr;  // halves [kFreeDim][kFreeBlock] each
  uint32_t count = 0;                       // of blocks
  float* scores = nullptr;                  // [kFreeGroup][stride], not scaled
  size_t stride = 0;
};

// The sum of weight * value over `keys` slots of the blocks.
struct FreeValues {
  const float* weights = nullptr;           // [kFreeGroup][stride]
  const uint16_t* const* blocks = nullptr;  // halves [kFreeBlock][kFreeDim] each
  uint32_t keys = 0;
  size_t stride = 0;
  float* out = nullptr;  // [kFreeGroup][kFreeDim]
};

struct FreeKernels {
  // As the kernels of a Tier, with several sums for each output.
  void (*linear_q4_1)(const kernels::cpu::QuantizedPanel<int8_t>&);
  void (*dense_half)(const kernels::cpu::DensePanel<uint16_t>&);  // one run, kPanel columns

  void (*scores)(const FreeKeys&);
  void (*values)(const FreeValues&);
};

// Run them only where the tier of that name runs.
extern const FreeKernels kFreeAvx2;
extern const FreeKernels kFreeAvx512;

}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_FREE_ORDER_H_
