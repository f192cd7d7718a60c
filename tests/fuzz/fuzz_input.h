// Cuts the bytes of a fuzzer's input into numbers and texts. When they are used up it gives zeros
// and empty texts, so every input is a valid one. Not thread-safe.
#ifndef BATON_TESTS_FUZZ_FUZZ_INPUT_H_
#define BATON_TESTS_FUZZ_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace baton {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return left_.empty(); }
  size_t size() const { return left_.size(); }

  uint8_t Byte() { return empty() ? 0 : static_cast<uint8_t>(Take(1)[0]); }
  // 0 to limit - 1; `limit` is 1 to 256.
  uint32_t Below(uint32_t limit) { return Byte() % limit; }
  // Little-endian.
  uint32_t Number() {
    uint32_t value = 0;
    for (int shift = 0; shift < 32; shift += 8) value |= uint32_t{Byte()} << shift;
    return value;
  }
  std::string_view Take(size_t bytes) {
    const std::string_view taken = left_.substr(0, std::min(bytes, left_.size()));
    left_.remove_prefix(taken.size());
    return taken;
  }
  // A byte with the length, then so many bytes.
  std::string_view ShortText() { return Take(Byte()); }
  // Two bytes with the length.
  std::string_view LongText() {
    const size_t low = Byte();
    return Take(low | size_t{Byte()} << 8);
  }
  std::string_view Rest() { return Take(left_.size()); }

 private:
  std::string_view left_;
};

}  // namespace baton

#endif  // BATON_TESTS_FUZZ_FUZZ_INPUT_H_
