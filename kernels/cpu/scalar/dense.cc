#include <cmath>

#include "kernels/cpu/scalar/scalar.h"
#include "kernels/half.h"

namespace baton::kernels::cpu {
namespace {

float ToFloat(uint16_t half) { return HalfToFloat(half); }
float ToFloat(BFloat16 value) { return BFloat16ToFloat(static_cast<uint16_t>(value)); }
float ToFloat(float value) { return value; }
float ToFloat(int8_t value) { return value; }

template <typename B>
float Dot(const DensePanel<B>& args, const float* a, uint32_t n, float sum) {
  const B* const* runs = args.runs + n / kPanel * args.panel_runs;
  for (uint32_t k = 0; k < args.k; ++k) {
    const B* row = runs[k / args.run] + (k % args.run) * args.b_stride;
    sum = std::fmaf(a[k], ToFloat(row[n % kPanel]), sum);
  }
  return sum;
}

template <typename B>
void Dense(const DensePanel<B>& args) {
  for (uint32_t r = 0; r < args.rows; ++r) {
    float* out = args.out + r * args.out_stride;
    for (uint32_t n = 0; n < args.cols; ++n) {
      const float begin = args.store == DenseStore::kContinue ? out[n] : 0.0f;
      const float sum = Dot(args, args.a + r * args.a_stride, n, begin);
      out[n] = args.store == DenseStore::kAdd ? out[n] + sum : sum;
    }
  }
}

template <typename B>
void Widen(const WidenPanel<B>& args) {
  for (uint32_t r = 0; r < args.rows; ++r) {
    for (uint32_t i = 0; i < kPanel; ++i) {
      args.to[r * kPanel + i] = ToFloat(args.from[r * args.stride + i]);
    }
  }
}

}  // namespace

void ScalarDenseHalf(const DensePanel<uint16_t>& args) { Dense(args); }
void ScalarDenseBFloat16(const DensePanel<BFloat16>& args) { Dense(args); }
void ScalarDenseFloat(const DensePanel<float>& args) { Dense(args); }
void ScalarDenseInt8(const DensePanel<int8_t>& args) { Dense(args); }
void ScalarWidenHalf(const WidenPanel<uint16_t>& args) { Widen(args); }
void ScalarWidenInt8(const WidenPanel<int8_t>& args) { Widen(args); }

}  // namespace baton::kernels::cpu
