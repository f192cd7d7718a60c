#include "kernels/cpu/row_loops.h"
#include "kernels/cpu/scalar/exp.h"
#include "kernels/cpu/scalar/scalar.h"
#include "kernels/half.h"

namespace baton::kernels::cpu {

void ScalarRmsNorm(const float* x, const float* gain, size_t n, float eps, float* out) {
  NormRow(x, gain, n, eps, out);
}

void ScalarRotateNeighbours(const float* cos, const float* sin, size_t pairs, float* head) {
  RotatePairs<2>(cos, sin, pairs, head, 1);
}

void ScalarRotateHalves(const float* cos, const float* sin, size_t pairs, float* head) {
  RotatePairs<1>(cos, sin, pairs, head, pairs);
}

void ScalarSwiGlu(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0f + Exp(-gate[i])) * up[i];
}

void ScalarToHalf(const float* x, size_t n, uint16_t* out) {
  for (size_t i = 0; i < n; ++i) out[i] = FloatToHalf(x[i]);
}

}  // namespace baton::kernels::cpu
