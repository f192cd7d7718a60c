// Compiled with -msse4.2 -mpclmul; entered only when the CPU has both. The crc32 instruction takes
// one word per cycle but answers after three, so three lanes run side by side and are then merged
// by a carry-less multiplication.
#include <cstring>

#include "common/check.h"
#include "common/crc32c_kernels.h"
#include "common/crc32c_polynomial.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace baton::crc32c {

#if defined(__x86_64__)
namespace {

constexpr size_t kLaneBytes = 1024;  // three lanes, read and written: well within L1

// The carry-less product of two reflected polynomials is short of one x, and the crc32 instruction
// multiplies by x^32 while it reduces: 33 in all.
constexpr uint32_t kOneLane = PowerOfX(8 * kLaneBytes - 33);
constexpr uint32_t kTwoLanes = PowerOfX(16 * kLaneBytes - 33);

uint32_t Shift(uint32_t state, uint32_t constant) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(state)),
                                               _mm_cvtsi32_si128(static_cast<int>(constant)), 0);
  return static_cast<uint32_t>(_mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(product))));
}

template <bool kCopy>
uint64_t Step(uint64_t state, std::byte* dst, const std::byte* src, size_t offset) {
  uint64_t word;
  std::memcpy(&word, src + offset, 8);
  if (kCopy) std::memcpy(dst + offset, &word, 8);
  return _mm_crc32_u64(state, word);
}

template <bool kCopy>
uint32_t ThreeLanes(uint32_t state, std::byte* dst, const std::byte* src) {
  uint64_t a = state;
  uint64_t b = 0;
  uint64_t c = 0;
  for (size_t i = 0; i < kLaneBytes; i += 8) {
    a = Step<kCopy>(a, dst, src, i);
    b = Step<kCopy>(b, dst, src, i + kLaneBytes);
    c = Step<kCopy>(c, dst, src, i + 2 * kLaneBytes);
  }
  return Shift(static_cast<uint32_t>(a), kTwoLanes) ^ Shift(static_cast<uint32_t>(b), kOneLane) ^
         static_cast<uint32_t>(c);
}

template <bool kCopy>
uint32_t Run(uint32_t state, std::byte* dst, const std::byte* src, size_t n) {
  size_t i = 0;
  for (; n - i >= 3 * kLaneBytes; i += 3 * kLaneBytes) {
    state = ThreeLanes<kCopy>(state, kCopy ? dst + i : nullptr, src + i);
  }
  for (; n - i >= 8; i += 8) state = static_cast<uint32_t>(Step<kCopy>(state, dst, src, i));
  for (; i < n; ++i) {
    const std::byte byte = src[i];
    if (kCopy) dst[i] = byte;
    state = _mm_crc32_u8(state, static_cast<unsigned char>(byte));
  }
  return state;
}

}  // namespace

uint32_t ExtendSse42(uint32_t state, const std::byte* data, size_t n) {
  return Run<false>(state, nullptr, data, n);
}

uint32_t CopySse42(std::byte* dst, const std::byte* src, size_t n, uint32_t state) {
  return Run<true>(state, dst, src, n);
}

#else

uint32_t ExtendSse42(uint32_t, const std::byte*, size_t) { BATON_CHECK(false); }
uint32_t CopySse42(std::byte*, const std::byte*, size_t, uint32_t) { BATON_CHECK(false); }

#endif

}  // namespace baton::crc32c
