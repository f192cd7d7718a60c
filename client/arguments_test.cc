#include "client/arguments.h"

#include <cmath>

#include "gtest/gtest.h"

namespace baton::client {
namespace {

absl::StatusOr<Arguments> Parse(const std::vector<std::string>& args) {
  return Arguments::Parse(args, {"prompt", "stop", "seed", "top-p", "max-tokens"}, {"json"});
}

TEST(ArgumentsTest, TakesBothSpellingsRepetitionsAndSwitches) {
  const auto args =
      Parse({"--prompt", "--text that begins with dashes", "--stop=a=b", "--stop", "", "--json"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->Get("prompt"), "--text that begins with dashes");
  EXPECT_EQ(args->All("stop"), std::vector<std::string>({"a=b", ""}));
  EXPECT_TRUE(args->Has("json"));
  EXPECT_FALSE(args->Has("seed"));
  EXPECT_TRUE(args->All("seed").empty());
}

TEST(ArgumentsTest, RefusesWhatItDoesNotKnowByName) {
  EXPECT_EQ(Parse({"--promt", "x"}).status().message(), "unknown flag: --promt");
  EXPECT_EQ(Parse({"x"}).status().message(), "unexpected argument: x");
  EXPECT_EQ(Parse({"--seed"}).status().message(), "--seed: needs a value");
  EXPECT_FALSE(Parse({"--json=yes"}).ok());
}

TEST(ArgumentsTest, NumbersMustBeWholeAndOfTheirType) {
  EXPECT_EQ(*Parse({"--max-tokens", "-3"})->Int("max-tokens"), -3);
  EXPECT_EQ(*Parse({"--seed", "18446744073709551615"})->Unsigned("seed"), UINT64_MAX);
  EXPECT_FALSE(*Parse({})->Int("max-tokens"));
  for (const char* bad : {"", "1x", " 1", "4294967296", "1.5"}) {
    EXPECT_FALSE(Parse({"--max-tokens", bad})->Int("max-tokens").ok()) << bad;
  }
  EXPECT_TRUE(std::isnan(**Parse({"--top-p", "nan"})->Float("top-p")));
  EXPECT_FALSE(Parse({"--top-p", "0.5x"})->Float("top-p").ok());
}

TEST(ArgumentsTest, CountsAreNotNegative) {
  EXPECT_EQ(*Parse({"--max-tokens", "3"})->Count("max-tokens"), 3u);
  EXPECT_FALSE(Parse({"--max-tokens", "-3"})->Count("max-tokens").ok());
}

TEST(ArgumentsTest, BiasesAreAListOfIdsAndValues) {
  using Biases = std::vector<std::pair<int32_t, float>>;
  EXPECT_EQ(*ParseBiases("bias", "7=-100,1=0.5"), Biases({{7, -100}, {1, 0.5f}}));
  for (const char* bad : {"", "7", "7=", "=1", "7=1,", "a=1", "7=x"}) {
    EXPECT_FALSE(ParseBiases("bias", bad).ok()) << bad;
  }
}

TEST(ArgumentsTest, IdsAreAListOfNumbers) {
  EXPECT_EQ(*ParseIds("ids", "1,-2,3"), std::vector<int32_t>({1, -2, 3}));
  for (const char* bad : {"", "1,", ",1", "1,,2", "1;2"}) {
    EXPECT_FALSE(ParseIds("ids", bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace baton::client
