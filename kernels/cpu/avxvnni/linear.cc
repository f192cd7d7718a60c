#include "kernels/cpu/avxvnni/avxvnni.h"
#include "kernels/cpu/dot/linear_q4_0.h"
#include "kernels/cpu/dot/linear_q4_1.h"
#include "kernels/cpu/dot/linear_q8_0.h"
#include "kernels/cpu/dot/vector256.h"

namespace baton::kernels::cpu {
namespace {

struct VexDot {
  static BATON_INLINE __m256i Bytes(__m256i sum, __m256i unsigned_bytes, __m256i signed_bytes) {
    return _mm256_dpbusd_avx_epi32(sum, unsigned_bytes, signed_bytes);
  }
  static BATON_INLINE __m256i Shorts(__m256i sum, __m256i a, __m256i b) {
    return _mm256_dpwssd_avx_epi32(sum, a, b);
  }
};
using Vector = Vector256<VexDot>;

}  // namespace

void AvxVnniLinearQ4_0(const QuantizedPanel<int8_t>& args) { RunQ4_0<Vector>(args); }
void AvxVnniLinearQ4_1(const QuantizedPanel<int8_t>& args) { RunQ4_1<Vector>(args); }
void AvxVnniLinearQ8_0(const QuantizedPanel<int16_t>& args) { RunQ8_0<Vector>(args); }

void AvxVnniDotBytes(const uint8_t* a, const int8_t* b, int32_t* sum) {
  Vector::Store(sum, VexDot::Bytes(Vector::Load(sum), Vector::Load(a), Vector::Load(b)));
}
void AvxVnniDotShorts(const int16_t* a, const int16_t* b, int32_t* sum) {
  Vector::Store(sum, VexDot::Shorts(Vector::Load(sum), Vector::Load(a), Vector::Load(b)));
}

}  // namespace baton::kernels::cpu
