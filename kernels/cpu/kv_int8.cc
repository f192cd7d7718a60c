#include "kernels/cpu/kv_int8.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/cpu/exp_constants.h"

namespace baton::kernels::cpu {

float QuantizeVector(const float* x, uint32_t n, int8_t* q) {
  uint32_t largest_bits = 0;
  for (uint32_t i = 0; i < n; ++i) {
    largest_bits = std::max(largest_bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffff);
  }
  const auto largest = std::bit_cast<float>(largest_bits);
  const bool finite = largest_bits < 0x7f800000;
  if (!finite || largest < kTiny) {
    std::fill(q, q + n, int8_t{0});
    return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  const float inverse = 127.0f / largest;
  for (uint32_t i = 0; i < n; ++i) {
    q[i] = static_cast<int8_t>((x[i] * inverse + kRoundMagic) - kRoundMagic);
  }
  return largest / 127.0f;
}

}  // namespace baton::kernels::cpu
