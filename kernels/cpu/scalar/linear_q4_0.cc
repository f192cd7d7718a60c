#include <cmath>

#include "kernels/cpu/packed.h"
#include "kernels/cpu/scalar/scalar.h"
#include "kernels/half.h"

namespace baton::kernels::cpu {
namespace {

// `centre` is for tiers that multiply unsigned nibbles: the sum is the same integer.
int32_t BlockDot(const PanelQ4_0& block, uint32_t n, const int8_t* q) {
  int32_t sum = 0;
  for (uint32_t k = 0; k < kBlock / 2; ++k) {
    const int32_t byte = block.nibbles[k / 4][n][k % 4];
    sum += ((byte & 15) - 8) * q[k] + ((byte >> 4) - 8) * q[k + 16];
  }
  return sum;
}

}  // namespace

void ScalarLinearQ4_0(const QuantizedPanel<int8_t>& args) {
  const auto* panel = reinterpret_cast<const PanelQ4_0*>(args.panel);
  for (uint32_t r = 0; r < args.rows; ++r) {
    const int8_t* q = args.in.q + r * args.in.q_stride;
    const float* scale = args.in.scale + r * args.in.scale_stride;
    for (uint32_t n = 0; n < kPanel; ++n) {
      float sum = 0;
      for (uint32_t b = 0; b < args.blocks; ++b) {
        const auto dot = static_cast<float>(BlockDot(panel[b], n, q + b * kBlock));
        sum = std::fmaf(HalfToFloat(panel[b].scale[n]) * scale[b], dot, sum);
      }
      float& out = args.out[r * args.out_stride + n];
      out = args.add ? out + sum : sum;
    }
  }
}

}  // namespace baton::kernels::cpu
