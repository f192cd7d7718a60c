// Private to crc32c: arithmetic of its constants, at compile time.
#ifndef BATON_COMMON_CRC32C_POLYNOMIAL_H_
#define BATON_COMMON_CRC32C_POLYNOMIAL_H_

#include <cstddef>
#include <cstdint>

namespace baton::crc32c {

// Reflected polynomials modulo P: bit 31 is x^0.
constexpr uint32_t TimesX(uint32_t a) { return (a >> 1) ^ ((a & 1) ? 0x82f63b78u : 0); }

constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit, b = TimesX(b)) {
    if ((a >> bit) & 1) product ^= b;
  }
  return product;
}

constexpr uint32_t PowerOfX(size_t exponent) {
  uint32_t power = 0x80000000;   // 1
  uint32_t square = 0x40000000;  // x
  for (; exponent > 0; exponent >>= 1, square = Multiply(square, square)) {
    if (exponent & 1) power = Multiply(power, square);
  }
  return power;
}

}  // namespace baton::crc32c

#endif  // BATON_COMMON_CRC32C_POLYNOMIAL_H_
