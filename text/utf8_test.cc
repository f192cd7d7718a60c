#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace baton {
namespace {

const std::string kBad(kReplacementCharacter);

TEST(Utf8, AcceptsWellFormedText) {
  for (const char* text : {"", "ascii", "é", "€", "🚀", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"}) {
    EXPECT_TRUE(IsValidUtf8(text)) << text;
    EXPECT_EQ(DecodeUtf8Lossy(text), text);
  }
  EXPECT_TRUE(IsValidUtf8(std::string(1, '\0')));
}

TEST(Utf8, RefusesIllFormedText) {
  for (const char* text :
       {"\x80", "\xC0\xAF", "\xC1\x81", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5", "\xFF", "\xE2\x82", "\xE2\x82 ", "a\xC3"}) {
    EXPECT_FALSE(IsValidUtf8(text));
  }
}

TEST(Utf8, ReplacesEachMaximalSubpartOnce) {
  EXPECT_EQ(DecodeUtf8Lossy("\xE2\x82 "), kBad + " ");             // truncated: one
  EXPECT_EQ(DecodeUtf8Lossy("\xF0\x9F\x9A"), kBad);                // at the end: one
  EXPECT_EQ(DecodeUtf8Lossy("\xED\xA0\x80"), kBad + kBad + kBad);  // surrogate: three
  EXPECT_EQ(DecodeUtf8Lossy("\xC0\xAF"), kBad + kBad);             // overlong: two
  EXPECT_EQ(DecodeUtf8Lossy("\xF0\x9F\xE2\x82\xAC"), kBad + "€");  // cut by another character
  EXPECT_EQ(DecodeUtf8Lossy("\xFF\x80z"), kBad + kBad + "z");
  // The example of the Unicode standard, table 3-8.
  EXPECT_EQ(DecodeUtf8Lossy("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + kBad + kBad + kBad + "b" + kBad + "c" + kBad + kBad + "d");
}

TEST(Utf8, PiecesDecodeToTheSameTextAsTheWhole) {
  const unsigned seed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string interesting = "a\x80\xBF\xC2\xE2\x82\xAC\xF0\x9F\x9A\x80\xED\xA0\xFF\xF4\x90";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 40; ++i) bytes += interesting[random() % interesting.size()];
    std::string joined;
    Utf8Decoder decoder;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = random() % 4;
      std::string piece;
      decoder.Append(std::string_view(bytes).substr(at, n), &piece);
      EXPECT_TRUE(IsValidUtf8(piece));
      joined += piece;
      at += n;
    }
    decoder.Finish(&joined);
    ASSERT_EQ(joined, DecodeUtf8Lossy(bytes));
  }
}

TEST(Utf8, EveryCodePointSurvivesARoundTrip) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_TRUE(IsValidUtf8(text)) << static_cast<uint32_t>(c);
    const CodePoint back = FirstCodePoint(text);
    ASSERT_EQ(back.value, c);
    ASSERT_EQ(back.bytes, text.size());
  }
}

}  // namespace
}  // namespace baton
