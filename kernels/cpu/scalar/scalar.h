// The scalar tier: the definition of numerics v3 in code, for any machine.
#ifndef BATON_KERNELS_CPU_SCALAR_SCALAR_H_
#define BATON_KERNELS_CPU_SCALAR_SCALAR_H_

#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

void ScalarLinearQ4_0(const QuantizedPanel<int8_t>& args);
void ScalarLinearQ4_1(const QuantizedPanel<int8_t>& args);
void ScalarLinearQ8_0(const QuantizedPanel<int16_t>& args);
void ScalarDenseHalf(const DensePanel<uint16_t>& args);
void ScalarDenseBFloat16(const DensePanel<BFloat16>& args);
void ScalarDenseFloat(const DensePanel<float>& args);
void ScalarDenseInt8(const DensePanel<int8_t>& args);
void ScalarQuantizeInt8(const QuantizeRows<int8_t>& args);
void ScalarQuantizeInt16(const QuantizeRows<int16_t>& args);
void ScalarWidenHalf(const WidenPanel<uint16_t>& args);
void ScalarWidenInt8(const WidenPanel<int8_t>& args);
void ScalarRmsNorm(const float* x, const float* gain, size_t n, float eps, float* out);
void ScalarRotateNeighbours(const float* cos, const float* sin, size_t pairs, float* head);
void ScalarRotateHalves(const float* cos, const float* sin, size_t pairs, float* head);
void ScalarSwiGlu(const float* gate, const float* up, size_t n, float* out);
void ScalarToHalf(const float* x, size_t n, uint16_t* out);
SoftmaxState ScalarSoftmax(float* scores, uint32_t n, float scale);
void ScalarMerge(SoftmaxState* state, float* values, const SoftmaxState& next,
                 const float* next_values, uint32_t n);

const Tier& ScalarTier();

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_SCALAR_SCALAR_H_
