#ifndef BATON_KERNELS_CPU_NORM_H_
#define BATON_KERNELS_CPU_NORM_H_

#include <cstdint>

namespace baton::kernels::cpu {

// out[i] = x[i] / sqrt(mean of squares + eps) * gain[i]. The same code serves every tier.
void RmsNorm(const float* x, const float* gain, uint32_t n, float eps, float* out);

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_NORM_H_
