// The code of the AVX-VNNI tier on two other pairs of dot products: the EVEX encoding of the same
// instructions at 256 bits, and a model of them in plain C++ for processors with AVX2 alone.
#ifndef BATON_KERNELS_CPU_DOT_STAND_INS_H_
#define BATON_KERNELS_CPU_DOT_STAND_INS_H_

#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

// Where AVX-512 with VL and VNNI is.
void EvexLinearQ4_0(const QuantizedPanel<int8_t>& args);
void EvexLinearQ4_1(const QuantizedPanel<int8_t>& args);
void EvexLinearQ8_0(const QuantizedPanel<int16_t>& args);
// As AvxVnniDotBytes and AvxVnniDotShorts.
void EvexDotBytes(const uint8_t* a, const int8_t* b, int32_t* sum);
void EvexDotShorts(const int16_t* a, const int16_t* b, int32_t* sum);

// Where AVX2 is.
void ModelLinearQ4_0(const QuantizedPanel<int8_t>& args);
void ModelLinearQ4_1(const QuantizedPanel<int8_t>& args);
void ModelLinearQ8_0(const QuantizedPanel<int16_t>& args);
void ModelDotBytes(const uint8_t* a, const int8_t* b, int32_t* sum);
void ModelDotShorts(const int16_t* a, const int16_t* b, int32_t* sum);

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_DOT_STAND_INS_H_
