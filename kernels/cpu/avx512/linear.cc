#include "kernels/cpu/avx512/avx512.h"
#include "kernels/cpu/avx512/vector.h"
#include "kernels/cpu/dot/linear_q4_0.h"
#include "kernels/cpu/dot/linear_q4_1.h"
#include "kernels/cpu/dot/linear_q8_0.h"

namespace baton::kernels::cpu {

void Avx512LinearQ4_0(const QuantizedPanel<int8_t>& args) { RunQ4_0<Vector512>(args); }
void Avx512LinearQ4_1(const QuantizedPanel<int8_t>& args) { RunQ4_1<Vector512>(args); }
void Avx512LinearQ8_0(const QuantizedPanel<int16_t>& args) { RunQ8_0<Vector512>(args); }

}  // namespace baton::kernels::cpu
