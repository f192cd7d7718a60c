#include <cmath>

#include "kernels/cpu/packed.h"
#include "kernels/cpu/scalar/scalar.h"
#include "kernels/half.h"

namespace baton::kernels::cpu {
namespace {

int32_t BlockDot(const PanelQ8_0& block, uint32_t n, const int16_t* q) {
  int32_t sum = 0;
  for (uint32_t k = 0; k < kBlock; ++k) sum += block.values[k / 2][n][k % 2] * q[k];
  return sum;
}

}  // namespace

void ScalarLinearQ8_0(const QuantizedPanel<int16_t>& args) {
  const auto* panel = reinterpret_cast<const PanelQ8_0*>(args.panel);
  for (uint32_t r = 0; r < args.rows; ++r) {
    const int16_t* q = args.in.q + r * args.in.q_stride;
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
