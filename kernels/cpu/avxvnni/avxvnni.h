// The AVX-VNNI tier: the AVX2 tier with the dot products of VEX-encoded VNNI in the quantised
// kernels. No machine of ours has run it (docs/decisions/0017-tiers.md says what was checked).
#ifndef BATON_KERNELS_CPU_AVXVNNI_AVXVNNI_H_
#define BATON_KERNELS_CPU_AVXVNNI_AVXVNNI_H_

#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

void AvxVnniLinearQ4_0(const QuantizedPanel<int8_t>& args);
void AvxVnniLinearQ4_1(const QuantizedPanel<int8_t>& args);
void AvxVnniLinearQ8_0(const QuantizedPanel<int16_t>& args);

// The dot products alone, for eight lanes of 4 bytes or 2 int16: sum[i] += dot of a[i] and b[i].
void AvxVnniDotBytes(const uint8_t* a, const int8_t* b, int32_t* sum);
void AvxVnniDotShorts(const int16_t* a, const int16_t* b, int32_t* sum);

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_AVXVNNI_AVXVNNI_H_
