#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

using Pieces = std::vector<std::string>;

Pieces Split(const std::string& name, const std::string& text) {
  const auto pre_tokenizer = PreTokenizer::Create(name);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  const auto pieces = pre_tokenizer->Split(text);
  EXPECT_TRUE(pieces.ok()) << pieces.status();
  return Pieces(pieces->begin(), pieces->end());
}

TEST(PreTokenizer, Gpt2KeepsNumbersTogetherAndTakesOneSpaceAlong) {
  EXPECT_EQ(Split("gpt-2", "Hello  world, it's 2024!!\n\n x"),
            (Pieces{"Hello", " ", " world", ",", " it", "'s", " 2024", "!!", "\n\n", " x"}));
  EXPECT_EQ(Split("gpt-2", "a \nb\n"), (Pieces{"a", " ", "\n", "b", "\n"}));
  EXPECT_EQ(Split("gpt-2", ""), Pieces{});
}

TEST(PreTokenizer, SmollmCutsEveryDigitOffAndSpacesDoNotSeePastThem) {
  EXPECT_EQ(Split("smollm", "in 2024"), (Pieces{"in", " ", "2", "0", "2", "4"}));
  EXPECT_EQ(Split("smollm", "a  12b½٣"), (Pieces{"a", "  ", "1", "2", "b", "½", "٣"}));
  EXPECT_EQ(Split("smollm", "a  b"), (Pieces{"a", " ", " b"}));
}

TEST(PreTokenizer, ClassesAreThoseOfUnicode16) {
  // Letters, digits and ideographs younger than the PCRE2 library.
  EXPECT_EQ(Split("gpt-2", "a\U0002EBF0\U00010D50"), (Pieces{"a\U0002EBF0\U00010D50"}));
  EXPECT_EQ(Split("smollm", "1\U00010D40"), (Pieces{"1", "\U00010D40"}));
  // U+180E is no white space; U+0085 and U+3000 are.
  EXPECT_EQ(Split("gpt-2", "\u180e\u180e"), (Pieces{"\u180e\u180e"}));
  EXPECT_EQ(Split("gpt-2", "a\u0085\u3000b"), (Pieces{"a", "\u0085", "\u3000", "b"}));
}

TEST(PreTokenizer, UnknownOrMissingNameIsNeverADefault) {
  for (const char* name : {"", "default", "llama-bpe", "gpt2"}) {
    const auto status = PreTokenizer::Create(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(status.message().find("tokenizer.ggml.pre"), std::string::npos);
  }
}

// The match limit is a constant, so a pattern that backtracks once per character would fail here
// long before the end, and one that recurses would overflow the stack.
TEST(PreTokenizer, MillionsOfBytesOfOneClassNeedNoBacktracking) {
  for (const bool jit : {true, false}) {
    const size_t count = jit ? 5'000'000 : 500'000;
    for (const char* name : {"gpt-2", "smollm"}) {
      const auto pre_tokenizer = PreTokenizer::Create(name, {.jit = jit});
      ASSERT_TRUE(pre_tokenizer.ok());
      for (const std::string unit : {"a", ".", " ", "\n", "語", "👍"}) {
        std::string text;
        for (size_t i = 0; i < count / unit.size(); ++i) text += unit;
        const auto pieces = pre_tokenizer->Split(text);
        ASSERT_TRUE(pieces.ok()) << pieces.status() << " for " << unit << " jit " << jit;
        EXPECT_EQ(pieces->size(), 1u);
        const auto before_a_word = pre_tokenizer->Split(text + "x");
        ASSERT_TRUE(before_a_word.ok()) << before_a_word.status() << " for " << unit;
      }
    }
  }
}

}  // namespace
}  // namespace baton
