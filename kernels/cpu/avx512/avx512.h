// The AVX-512 tier (F, BW, DQ, VL and VNNI): the bits of the scalar tier, a panel's 16 outputs in
// one register.
#ifndef BATON_KERNELS_CPU_AVX512_AVX512_H_
#define BATON_KERNELS_CPU_AVX512_AVX512_H_

#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

void Avx512LinearQ4_0(const QuantizedPanel<int8_t>& args);
void Avx512LinearQ4_1(const QuantizedPanel<int8_t>& args);
void Avx512LinearQ8_0(const QuantizedPanel<int16_t>& args);
void Avx512PairHalf(const DensePanel<uint16_t>& args);
void Avx512PairBFloat16(const DensePanel<BFloat16>& args);
void Avx512PairFloat(const DensePanel<float>& args);
void Avx512DenseHalf(const DensePanel<uint16_t>& args);
void Avx512DenseBFloat16(const DensePanel<BFloat16>& args);
void Avx512DenseFloat(const DensePanel<float>& args);
void Avx512DenseInt8(const DensePanel<int8_t>& args);
void Avx512QuantizeInt8(const QuantizeRows<int8_t>& args);
void Avx512QuantizeInt16(const QuantizeRows<int16_t>& args);
void Avx512WidenInt8(const WidenPanel<int8_t>& args);
void Avx512SwiGlu(const float* gate, const float* up, size_t n, float* out);
void Avx512ToHalf(const float* x, size_t n, uint16_t* out);
SoftmaxState Avx512Softmax(float* scores, uint32_t n, float scale);
void Avx512Merge(SoftmaxState* state, float* values, const SoftmaxState& next,
                 const float* next_values, uint32_t n);

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_AVX512_AVX512_H_
