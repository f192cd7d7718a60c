#include "kernels/cpu/dot/linear_q4_0.h"
#include "kernels/cpu/dot/linear_q4_1.h"
#include "kernels/cpu/dot/linear_q8_0.h"
#include "kernels/cpu/dot/stand_ins.h"
#include "kernels/cpu/dot/vector256.h"

namespace baton::kernels::cpu {
namespace {

// Sums wrap, as those of the instructions without saturation do.
int32_t Plus(int32_t sum, int32_t product) {
  return static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(product));
}

// The manual's operation, lane by lane: dots of kCount numbers of a and b. Not inlined: a register
// tile has hundreds.
template <int kCount, typename A, typename B>
__attribute__((noinline)) __m256i LaneDots(__m256i sums, __m256i as, __m256i bs) {
  int32_t sum[8];
  A a[8 * kCount];
  B b[8 * kCount];
  static_assert(sizeof a == sizeof as && sizeof b == sizeof bs);
  __builtin_memcpy(sum, &sums, sizeof sum);
  __builtin_memcpy(a, &as, sizeof a);
  __builtin_memcpy(b, &bs, sizeof b);
  for (int i = 0; i < 8 * kCount; ++i) sum[i / kCount] = Plus(sum[i / kCount], a[i] * b[i]);
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sum));
}

struct ModelDot {
  static __m256i Bytes(__m256i sum, __m256i unsigned_bytes, __m256i signed_bytes) {
    return LaneDots<4, uint8_t, int8_t>(sum, unsigned_bytes, signed_bytes);
  }
  static __m256i Shorts(__m256i sum, __m256i a, __m256i b) {
    return LaneDots<2, int16_t, int16_t>(sum, a, b);
  }
};
using Vector = Vector256<ModelDot>;

}  // namespace

void ModelLinearQ4_0(const QuantizedPanel<int8_t>& args) { RunQ4_0<Vector>(args); }
void ModelLinearQ4_1(const QuantizedPanel<int8_t>& args) { RunQ4_1<Vector>(args); }
void ModelLinearQ8_0(const QuantizedPanel<int16_t>& args) { RunQ8_0<Vector>(args); }

void ModelDotBytes(const uint8_t* a, const int8_t* b, int32_t* sum) {
  Vector::Store(sum, ModelDot::Bytes(Vector::Load(sum), Vector::Load(a), Vector::Load(b)));
}
void ModelDotShorts(const int16_t* a, const int16_t* b, int32_t* sum) {
  Vector::Store(sum, ModelDot::Shorts(Vector::Load(sum), Vector::Load(a), Vector::Load(b)));
}

}  // namespace baton::kernels::cpu
