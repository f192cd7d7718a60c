// Compiled with -mavx2 -mvpclmulqdq beside SSE4.2 and PCLMULQDQ; entered only when the CPU has all
// of them. Half of the bytes are folded by carry-less multiplication while the crc32 instruction
// takes the other half in four lanes: they run on different units of the CPU.
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

constexpr size_t kTurns = 12;
constexpr size_t kFoldedBytes = kTurns * 128;
constexpr size_t kLaneBytes = kTurns * 32;
constexpr size_t kStretchBytes = kFoldedBytes + 4 * kLaneBytes;  // 3 KiB

// `state` moved over kBytes zero bytes. The carry-less product of two reflected polynomials is
// short of one x, and the crc32 instruction multiplies by x^32 while it reduces: 33 in all.
template <size_t kBytes>
uint32_t Shift(uint32_t state) {
  constexpr uint32_t kPower = PowerOfX(8 * kBytes - 33);
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(state)),
                                               _mm_cvtsi32_si128(static_cast<int>(kPower)), 0);
  return static_cast<uint32_t>(_mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(product))));
}

// As a reflected polynomial of 64 bits, one power less for the x that the product is short of.
constexpr int64_t Power(size_t exponent) {
  return static_cast<int64_t>(uint64_t{PowerOfX(exponent - 1)} << 32);
}

// Both 128-bit halves of `x` moved over kBits zero bits, plus `next`.
template <size_t kBits>
__m256i Fold(__m256i x, __m256i next) {
  const __m256i powers =
      _mm256_set_epi64x(Power(kBits), Power(kBits + 64), Power(kBits), Power(kBits + 64));
  const __m256i low = _mm256_clmulepi64_epi128(x, powers, 0x00);
  const __m256i high = _mm256_clmulepi64_epi128(x, powers, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

// The state after the 32 bytes of `x`, from state 0.
uint32_t Reduce(__m256i x) {
  const __m128i first = _mm256_castsi256_si128(x);
  const __m128i powers = _mm_set_epi64x(Power(128), Power(128 + 64));
  const __m128i folded = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(first, powers, 0x00),
                                                     _mm_clmulepi64_si128(first, powers, 0x11)),
                                       _mm256_extracti128_si256(x, 1));
  const uint64_t state = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(folded)));
  return static_cast<uint32_t>(
      _mm_crc32_u64(state, static_cast<uint64_t>(_mm_extract_epi64(folded, 1))));
}

__m256i Load(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

uint64_t Step(uint64_t state, const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, 8);
  return _mm_crc32_u64(state, word);
}

// Extends by one stretch.
uint32_t Stretch(uint32_t state, const std::byte* at) {
  const std::byte* const lanes = at + kFoldedBytes;
  uint64_t a = 0, b = 0, c = 0, d = 0;
  __m256i w = _mm256_xor_si256(Load(at), _mm256_set_epi64x(0, 0, 0, state));
  __m256i x = Load(at + 32), y = Load(at + 64), z = Load(at + 96);
  for (size_t turn = 0; turn < kTurns; ++turn) {
    if (turn > 0) {
      const std::byte* const next = at + 128 * turn;
      w = Fold<1024>(w, Load(next));
      x = Fold<1024>(x, Load(next + 32));
      y = Fold<1024>(y, Load(next + 64));
      z = Fold<1024>(z, Load(next + 96));
    }
    for (size_t i = 32 * turn; i < 32 * turn + 32; i += 8) {
      a = Step(a, lanes + i);
      b = Step(b, lanes + i + kLaneBytes);
      c = Step(c, lanes + i + 2 * kLaneBytes);
      d = Step(d, lanes + i + 3 * kLaneBytes);
    }
  }
  const uint32_t folded = Reduce(Fold<256>(Fold<512>(w, y), Fold<512>(x, z)));
  return Shift<4 * kLaneBytes>(folded) ^ Shift<3 * kLaneBytes>(static_cast<uint32_t>(a)) ^
         Shift<2 * kLaneBytes>(static_cast<uint32_t>(b)) ^
         Shift<kLaneBytes>(static_cast<uint32_t>(c)) ^ static_cast<uint32_t>(d);
}

// Registers of 32 bytes that are folded side by side while a copy waits for memory.
constexpr size_t kCopyLanes = 8;
constexpr size_t kCopyBytes = kCopyLanes * 32;

void Store(std::byte* at, __m256i x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), x); }

// Whole turns of kCopyBytes, at least one.
uint32_t CopyTurns(std::byte* dst, const std::byte* src, size_t turns, uint32_t state) {
  __m256i folded[kCopyLanes];
#pragma GCC unroll 8
  for (size_t lane = 0; lane < kCopyLanes; ++lane) {
    folded[lane] = Load(src + 32 * lane);
    Store(dst + 32 * lane, folded[lane]);
  }
  folded[0] = _mm256_xor_si256(folded[0], _mm256_set_epi64x(0, 0, 0, state));
  for (size_t turn = 1; turn < turns; ++turn) {
#pragma GCC unroll 8  // keeps the lanes in registers
    for (size_t lane = 0; lane < kCopyLanes; ++lane) {
      const size_t at = turn * kCopyBytes + 32 * lane;
      const __m256i next = Load(src + at);
      Store(dst + at, next);
      folded[lane] = Fold<8 * kCopyBytes>(folded[lane], next);
    }
  }
  __m256i all = folded[0];
#pragma GCC unroll 8
  for (size_t lane = 1; lane < kCopyLanes; ++lane) all = Fold<256>(all, folded[lane]);
  return Reduce(all);
}

uint32_t ExtendAll(uint32_t state, const std::byte* data, size_t n) {
  for (; n >= kStretchBytes; data += kStretchBytes, n -= kStretchBytes) {
    state = Stretch(state, data);
  }
  // For less than a stretch three lanes do.
  return ExtendSse42(state, data, n);
}

}  // namespace

uint32_t ExtendVpclmul(uint32_t state, const std::byte* data, size_t n) {
  return ExtendAll(state, data, n);
}

uint32_t CopyVpclmul(std::byte* dst, const std::byte* src, size_t n, uint32_t state) {
  const size_t turns = n / kCopyBytes;
  // Not past the cache: measured slower here, streaming stores wait for memory that ordinary ones
  // leave to the cache.
  if (turns > 0) state = CopyTurns(dst, src, turns, state);
  const size_t done = turns * kCopyBytes;
  return CopySse42(dst + done, src + done, n - done, state);
}

#else

uint32_t ExtendVpclmul(uint32_t, const std::byte*, size_t) { BATON_CHECK(false); }
uint32_t CopyVpclmul(std::byte*, const std::byte*, size_t, uint32_t) { BATON_CHECK(false); }

#endif

}  // namespace baton::crc32c
