#include "text/utf8.h"

#include "common/check.h"

namespace baton {

Utf8Scanner::Result Utf8Scanner::Feed(uint8_t byte) {
  if (needed_ > 0) {
    if (byte < low_ || byte > high_) {
      Reset();
      return Result::kInterrupt;
    }
    low_ = 0x80;
    high_ = 0xBF;
    ++pending_;
    if (--needed_ > 0) return Result::kPending;
    Reset();
    return Result::kComplete;
  }
  if (byte < 0x80) return Result::kComplete;
  if (byte < 0xC2 || byte > 0xF4) return Result::kInvalid;
  pending_ = 1;
  needed_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  // The second byte is what rules out overlong forms, surrogates and values above U+10FFFF.
  if (byte == 0xE0) low_ = 0xA0;
  if (byte == 0xED) high_ = 0x9F;
  if (byte == 0xF0) low_ = 0x90;
  if (byte == 0xF4) high_ = 0x8F;
  return Result::kPending;
}

bool IsValidUtf8(std::string_view text) {
  Utf8Scanner scanner;
  for (const char c : text) {
    const auto result = scanner.Feed(static_cast<uint8_t>(c));
    if (result == Utf8Scanner::Result::kInvalid) return false;
    if (result == Utf8Scanner::Result::kInterrupt) return false;
  }
  return scanner.pending() == 0;
}

void Utf8Decoder::Append(std::string_view bytes, std::string* out) {
  for (const char c : bytes) {
    auto result = scanner_.Feed(static_cast<uint8_t>(c));
    if (result == Utf8Scanner::Result::kInterrupt) {
      out->append(kReplacementCharacter);
      pending_.clear();
      result = scanner_.Feed(static_cast<uint8_t>(c));
    }
    if (result == Utf8Scanner::Result::kInvalid) {
      out->append(kReplacementCharacter);
      continue;
    }
    pending_.push_back(c);
    if (result != Utf8Scanner::Result::kComplete) continue;
    out->append(pending_);
    pending_.clear();
  }
}

void Utf8Decoder::Finish(std::string* out) {
  if (scanner_.pending() > 0) out->append(kReplacementCharacter);
  scanner_.Reset();
  pending_.clear();
}

std::string DecodeUtf8Lossy(std::string_view bytes) {
  std::string out;
  Utf8Decoder decoder;
  decoder.Append(bytes, &out);
  decoder.Finish(&out);
  return out;
}

CodePoint FirstCodePoint(std::string_view text) {
  BATON_CHECK(!text.empty());
  const auto byte = [text](size_t i) {
    return static_cast<char32_t>(static_cast<uint8_t>(text[i]));
  };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  BATON_CHECK(text.size() >= length);
  char32_t value = first & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) value = (value << 6) | (byte(i) & 0x3F);
  return {value, length};
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto push = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return push(code_point);
  if (code_point < 0x800) {
    push(0xC0 | (code_point >> 6));
  } else if (code_point < 0x10000) {
    push(0xE0 | (code_point >> 12));
    push(0x80 | ((code_point >> 6) & 0x3F));
  } else {
    push(0xF0 | (code_point >> 18));
    push(0x80 | ((code_point >> 12) & 0x3F));
    push(0x80 | ((code_point >> 6) & 0x3F));
  }
  push(0x80 | (code_point & 0x3F));
}

}  // namespace baton
