#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace baton {
namespace {

constexpr char32_t kFirstStandIn = 0x100;
constexpr size_t kStandIns = 68;

constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<uint8_t, kStandIns> MakeStandIns() {
  std::array<uint8_t, kStandIns> bytes{};
  size_t n = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (!StandsForItself(byte)) bytes[n++] = static_cast<uint8_t>(byte);
  }
  return bytes;
}
constexpr std::array<uint8_t, kStandIns> kStandInBytes = MakeStandIns();

char32_t AlphabetOf(uint8_t byte) {
  if (StandsForItself(byte)) return byte;
  char32_t stand_in = kFirstStandIn;
  while (kStandInBytes[stand_in - kFirstStandIn] != byte) ++stand_in;
  return stand_in;
}

}  // namespace

std::optional<std::string> BytesFromAlphabet(std::string_view token) {
  if (!IsValidUtf8(token)) return std::nullopt;
  std::string bytes;
  while (!token.empty()) {
    const CodePoint c = FirstCodePoint(token);
    token.remove_prefix(c.bytes);
    if (c.value < kFirstStandIn && StandsForItself(c.value)) {
      bytes.push_back(static_cast<char>(c.value));
    } else if (c.value >= kFirstStandIn && c.value < kFirstStandIn + kStandIns) {
      bytes.push_back(static_cast<char>(kStandInBytes[c.value - kFirstStandIn]));
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

std::string BytesToAlphabet(std::string_view bytes) {
  std::string token;
  for (const char c : bytes) AppendUtf8(AlphabetOf(static_cast<uint8_t>(c)), &token);
  return token;
}

}  // namespace baton
