// The NEON tier (aarch64 with the dot product instructions): the bits of the scalar tier, four
// lanes at a time.
#ifndef BATON_KERNELS_CPU_NEON_NEON_H_
#define BATON_KERNELS_CPU_NEON_NEON_H_

#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

void NeonLinearQ4_0(const QuantizedPanel<int8_t>& args);
void NeonLinearQ4_1(const QuantizedPanel<int8_t>& args);
void NeonLinearQ8_0(const QuantizedPanel<int16_t>& args);
void NeonDenseHalf(const DensePanel<uint16_t>& args);
void NeonDenseBFloat16(const DensePanel<BFloat16>& args);
void NeonDenseFloat(const DensePanel<float>& args);
void NeonDenseInt8(const DensePanel<int8_t>& args);
void NeonPairHalf(const DensePanel<uint16_t>& args);
void NeonPairBFloat16(const DensePanel<BFloat16>& args);
void NeonPairFloat(const DensePanel<float>& args);
void NeonQuantizeInt8(const QuantizeRows<int8_t>& args);
void NeonQuantizeInt16(const QuantizeRows<int16_t>& args);
void NeonWidenHalf(const WidenPanel<uint16_t>& args);
void NeonWidenInt8(const WidenPanel<int8_t>& args);
void NeonRmsNorm(const float* x, const float* gain, size_t n, float eps, float* out);
void NeonRotateNeighbours(const float* cos, const float* sin, size_t pairs, float* head);
void NeonRotateHalves(const float* cos, const float* sin, size_t pairs, float* head);
void NeonSwiGlu(const float* gate, const float* up, size_t n, float* out);
void NeonToHalf(const float* x, size_t n, uint16_t* out);
SoftmaxState NeonSoftmax(float* scores, uint32_t n, float scale);
void NeonMerge(SoftmaxState* state, float* values, const SoftmaxState& next,
               const float* next_values, uint32_t n);

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_NEON_NEON_H_
