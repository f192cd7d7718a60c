#include "common/crc32c.h"

#include <array>
#include <cstring>

#include "common/crc32c_kernels.h"
#include "common/crc32c_polynomial.h"

namespace baton {
namespace crc32c {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: the state after byte b and k zero bytes.
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) ? kPolynomial : 0);
    tables[0][byte] = state;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

uint32_t Step8(uint32_t state, uint64_t word) {
  word ^= state;
  uint32_t next = 0;
  for (size_t i = 0; i < 8; ++i) next ^= kTables[7 - i][(word >> (8 * i)) & 0xff];
  return next;
}

uint32_t Step1(uint32_t state, std::byte byte) {
  return (state >> 8) ^ kTables[0][(state ^ static_cast<uint32_t>(byte)) & 0xff];
}

}  // namespace

uint32_t ExtendPortable(uint32_t state, const std::byte* data, size_t n) {
  for (; n >= 8; data += 8, n -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    state = Step8(state, word);
  }
  for (; n > 0; ++data, --n) state = Step1(state, *data);
  return state;
}

uint32_t CopyPortable(std::byte* dst, const std::byte* src, size_t n, uint32_t state) {
  for (; n >= 8; dst += 8, src += 8, n -= 8) {
    uint64_t word;
    std::memcpy(&word, src, 8);
    state = Step8(state, word);
    std::memcpy(dst, &word, 8);
  }
  for (; n > 0; ++dst, ++src, --n) {
    *dst = *src;
    state = Step1(state, *dst);
  }
  return state;
}

#if defined(__x86_64__)
bool HasSse42() {
  static const bool has =
      __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("pclmul") != 0;
  return has;
}
bool HasVpclmul() {
  static const bool has = HasSse42() && __builtin_cpu_supports("avx2") != 0 &&
                          __builtin_cpu_supports("vpclmulqdq") != 0;
  return has;
}
#else
bool HasSse42() { return false; }
bool HasVpclmul() { return false; }
#endif

}  // namespace crc32c

uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> data) {
  using namespace crc32c;
  if (HasVpclmul()) return ~ExtendVpclmul(~crc, data.data(), data.size());
  if (HasSse42()) return ~ExtendSse42(~crc, data.data(), data.size());
  return ~ExtendPortable(~crc, data.data(), data.size());
}

uint32_t CopyAndCrc32c(std::byte* dst, const std::byte* src, size_t n, uint32_t crc) {
  using namespace crc32c;
  if (HasVpclmul()) return ~CopyVpclmul(dst, src, n, ~crc);
  if (HasSse42()) return ~CopySse42(dst, src, n, ~crc);
  return ~CopyPortable(dst, src, n, ~crc);
}

// The CRC's inversions at begin and end cancel out: what is left is a multiplication by a power of
// x.
Crc32cConcat::Crc32cConcat(uint64_t bytes) : table_{} {
  const uint32_t power = crc32c::PowerOfX(8 * bytes);
  for (uint32_t place = 0; place < 4; ++place) {
    for (uint32_t bit = 0; bit < 8; ++bit) {
      table_[place][1u << bit] = crc32c::Multiply(1u << (8 * place + bit), power);
    }
    for (uint32_t n = 1; n < 256; ++n) {
      const uint32_t lowest = n & -n;
      table_[place][n] = table_[place][lowest] ^ table_[place][n ^ lowest];
    }
  }
}

}  // namespace baton
