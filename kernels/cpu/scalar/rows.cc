#include "kernels/cpu/scalar/exp.h"
#include "kernels/cpu/scalar/scalar.h"
#include "kernels/half.h"

namespace baton::kernels::cpu {

void ScalarSwiGlu(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0f + Exp(-gate[i])) * up[i];
}

void ScalarToHalf(const float* x, size_t n, uint16_t* out) {
  for (size_t i = 0; i < n; ++i) out[i] = FloatToHalf(x[i]);
}

}  // namespace baton::kernels::cpu
