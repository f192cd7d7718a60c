#include "kernels/cpu/dot/linear_q4_0.h"
#include "kernels/cpu/dot/linear_q4_1.h"
#include "kernels/cpu/dot/linear_q8_0.h"
#include "kernels/cpu/neon/neon.h"
#include "kernels/cpu/neon/vector.h"

namespace baton::kernels::cpu {

void NeonLinearQ4_0(const QuantizedPanel<int8_t>& args) { RunQ4_0<Vector128>(args); }
void NeonLinearQ4_1(const QuantizedPanel<int8_t>& args) { RunQ4_1<Vector128>(args); }
void NeonLinearQ8_0(const QuantizedPanel<int16_t>& args) { RunQ8_0<Vector128>(args); }

}  // namespace baton::kernels::cpu
