#include "kernels/cpu/norm.h"

#include "kernels/cpu/lane_sum.h"

namespace baton::kernels::cpu {

void RmsNorm(const float* x, const float* gain, uint32_t n, float eps, float* out) {
  float lanes[kLanes] = {};
  uint32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  }
  for (uint32_t lane = 0; i + lane < n; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  const float mean = SumOfLanes(lanes) / static_cast<float>(n);
  const float inverse = 1.0f / __builtin_sqrtf(mean + eps);
  for (uint32_t k = 0; k < n; ++k) out[k] = x[k] * inverse * gain[k];
}

}  // namespace baton::kernels::cpu
