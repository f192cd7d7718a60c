// How weights lie in memory ("N16"): a panel is 16 outputs over all inputs, so that vector lanes
// are outputs and no sum crosses lanes. The bytes are those of the GGUF blocks, interleaved. Rows
// that fill up the last panel are zero. docs/numerics.md says how they are multiplied.
#ifndef BATON_KERNELS_CPU_PACKED_H_
#define BATON_KERNELS_CPU_PACKED_H_

#include <stdint.h>

#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

// The nibbles of 32 inputs of one panel. Byte j of group g of an output: low nibble = input
// 4 g + j, high nibble = input 4 g + j + 16.
using PanelNibbles = uint8_t[4][kPanel][4];

// weight = scale * (nibble - 8).
struct PanelQ4_0 {
  PanelNibbles nibbles;
  uint16_t scale[kPanel];
};
static_assert(sizeof(PanelQ4_0) == 288);

// weight = scale * nibble + min.
struct PanelQ4_1 {
  PanelNibbles nibbles;
  uint16_t scale[kPanel];
  uint16_t min[kPanel];
};
static_assert(sizeof(PanelQ4_1) == 320);

// 32 inputs of one panel in pairs; weight = scale * value.
struct PanelQ8_0 {
  int8_t values[kBlock / 2][kPanel][2];
  uint16_t scale[kPanel];
};
static_assert(sizeof(PanelQ8_0) == 544);

// F16, BF16 and F32: [input][16].

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_PACKED_H_
