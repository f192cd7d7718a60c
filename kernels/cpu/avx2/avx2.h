// The AVX2 tier (with FMA and F16C): the bits of the scalar tier, 8 or 16 lanes at a time.
#ifndef BATON_KERNELS_CPU_AVX2_AVX2_H_
#define BATON_KERNELS_CPU_AVX2_AVX2_H_

#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

void Avx2LinearQ4_0(const QuantizedPanel<int8_t>& args);
void Avx2LinearQ4_1(const QuantizedPanel<int8_t>& args);
void Avx2LinearQ8_0(const QuantizedPanel<int16_t>& args);
void Avx2PairHalf(const DensePanel<uint16_t>& args);
void Avx2PairBFloat16(const DensePanel<BFloat16>& args);
void Avx2PairFloat(const DensePanel<float>& args);
void Avx2DenseHalf(const DensePanel<uint16_t>& args);
void Avx2DenseBFloat16(const DensePanel<BFloat16>& args);
void Avx2DenseFloat(const DensePanel<float>& args);
void Avx2DenseInt8(const DensePanel<int8_t>& args);
void Avx2QuantizeInt8(const QuantizeRows<int8_t>& args);
void Avx2QuantizeInt16(const QuantizeRows<int16_t>& args);
void Avx2WidenHalf(const WidenPanel<uint16_t>& args);
void Avx2WidenInt8(const WidenPanel<int8_t>& args);
void Avx2RmsNorm(const float* x, const float* gain, size_t n, float eps, float* out);
void Avx2RotateNeighbours(const float* cos, const float* sin, size_t pairs, float* head);
void Avx2RotateHalves(const float* cos, const float* sin, size_t pairs, float* head);
void Avx2SwiGlu(const float* gate, const float* up, size_t n, float* out);
void Avx2ToHalf(const float* x, size_t n, uint16_t* out);
SoftmaxState Avx2Softmax(float* scores, uint32_t n, float scale);
void Avx2Merge(SoftmaxState* state, float* values, const SoftmaxState& next,
               const float* next_values, uint32_t n);

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_AVX2_AVX2_H_
