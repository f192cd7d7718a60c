// UTF-8 as the Encoding Standard decodes it: each maximal subpart of an ill-formed sequence (the
// longest prefix of a well-formed one, or one single byte) is one U+FFFD. Surrogates, overlong
// forms and values above U+10FFFF are ill-formed.
#ifndef BATON_TEXT_UTF8_H_
#define BATON_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

bool IsValidUtf8(std::string_view text);

// State between two bytes. A plain value, cheap to copy.
class Utf8Scanner {
 public:
  enum class Result {
    kPending,    // the byte begins or continues a character that is not complete
    kComplete,   // the byte completes a character
    kInvalid,    // the byte (with nothing pending) is ill-formed by itself
    kInterrupt,  // the pending bytes are ill-formed; feed this same byte again
  };
  Result Feed(uint8_t byte);
  // Bytes of the character that has begun and is not complete: 0 at a boundary.
  size_t pending() const { return pending_; }
  void Reset() { *this = Utf8Scanner(); }

 private:
  uint8_t pending_ = 0;
  uint8_t needed_ = 0;  // continuation bytes still to come
  uint8_t low_ = 0x80;  // allowed range of the next one
  uint8_t high_ = 0xBF;
};

// Decodes a stream in pieces. The concatenated output is the same for any split of the input.
class Utf8Decoder {
 public:
  // Appends to `out` what is complete; keeps the bytes of an incomplete character.
  void Append(std::string_view bytes, std::string* out);
  // End of the stream: an incomplete character becomes one U+FFFD.
  void Finish(std::string* out);

 private:
  Utf8Scanner scanner_;
  std::string pending_;
};

// The whole text at once.
std::string DecodeUtf8Lossy(std::string_view bytes);

// Whole character at the start of valid, non-empty `text`.
struct CodePoint {
  char32_t value;
  size_t bytes;
};
CodePoint FirstCodePoint(std::string_view text);
void AppendUtf8(char32_t code_point, std::string* out);

}  // namespace baton

#endif  // BATON_TEXT_UTF8_H_
