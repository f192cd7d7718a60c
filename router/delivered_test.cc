#include "router/delivered.h"

#include <string>

#include "gtest/gtest.h"
#include "router/status_details.h"

namespace baton::router {
namespace {

constexpr uint32_t kPrompt = 20;
constexpr auto kGoesOn = worker::v1::FINISH_REASON_UNSPECIFIED;
constexpr auto kStop = worker::v1::FINISH_REASON_STOP;
constexpr auto kLength = worker::v1::FINISH_REASON_LENGTH;

worker::v1::Token Make(uint32_t choice, uint32_t index, TokenId token,
                       worker::v1::FinishReason finish = kGoesOn) {
  worker::v1::Token out;
  out.set_choice(choice);
  out.set_position(kPrompt + index);
  out.set_token(token);
  out.set_visible_bytes(index);
  out.set_finish_reason(finish);
  return out;
}

class DeliveredTest : public testing::Test {
 protected:
  // The client has two tokens of choice 0, which is over, one of choice 1, none of choice 2.
  DeliveredTest() {
    Take(Make(0, 0, 10));
    Take(Make(1, 0, 20));
    Take(Make(0, 1, 11, kStop));
  }

  void Take(const worker::v1::Token& token) {
    const auto fresh = delivered_.Check(token);
    ASSERT_TRUE(fresh.ok()) << fresh.status();
    ASSERT_TRUE(*fresh);
    delivered_.Add(token, Time{});
  }
  // "new", "known" or the reason of the error.
  std::string Verdict(const worker::v1::Token& token) const {
    const auto fresh = delivered_.Check(token);
    if (fresh.ok()) return *fresh ? "new" : "known";
    EXPECT_EQ(fresh.status().code(), absl::StatusCode::kInternal);
    return ReasonOf(fresh.status());
  }

  Delivered delivered_{3, kPrompt, 4};
};

TEST_F(DeliveredTest, EachChoiceHasItsOwnNextPosition) {
  EXPECT_EQ(Verdict(Make(1, 1, 21)), "new");
  EXPECT_EQ(Verdict(Make(2, 0, 30)), "new");
  EXPECT_EQ(Verdict(Make(1, 2, 21)), "PROTOCOL");
  EXPECT_EQ(Verdict(Make(2, 1, 30)), "PROTOCOL");
  worker::v1::Token in_the_prompt = Make(2, 0, 30);
  in_the_prompt.set_position(kPrompt - 1);
  EXPECT_EQ(Verdict(in_the_prompt), "PROTOCOL");
}

TEST_F(DeliveredTest, ARepeatedTokenIsKnownOnlyWhenItIsEqualTheEndIncluded) {
  EXPECT_EQ(Verdict(Make(0, 0, 10)), "known");
  EXPECT_EQ(Verdict(Make(1, 0, 20)), "known");
  EXPECT_EQ(Verdict(Make(0, 1, 11, kStop)), "known");
  EXPECT_EQ(Verdict(Make(1, 0, 10)), "TOKEN_MISMATCH");
  EXPECT_EQ(Verdict(Make(0, 0, 10, kStop)), "TOKEN_MISMATCH");
  EXPECT_EQ(Verdict(Make(1, 0, 20, kLength)), "TOKEN_MISMATCH");
  EXPECT_EQ(Verdict(Make(0, 1, 11, kLength)), "TOKEN_MISMATCH");
  EXPECT_EQ(Verdict(Make(0, 1, 11)), "TOKEN_MISMATCH");
}

TEST_F(DeliveredTest, NothingComesBehindAChoicesEndNorOfAChoiceThatDoesNotExist) {
  EXPECT_EQ(Verdict(Make(0, 2, 12)), "PROTOCOL");
  EXPECT_EQ(Verdict(Make(3, 0, 40)), "PROTOCOL");
  EXPECT_EQ(Verdict(Make(UINT32_MAX, 0, 40)), "PROTOCOL");
}

TEST_F(DeliveredTest, VisibleBytesAndLengthAreOfTheChoice) {
  Take(Make(1, 1, 21));
  worker::v1::Token fell = Make(1, 2, 22);
  fell.set_visible_bytes(0);
  EXPECT_EQ(Verdict(fell), "PROTOCOL");
  Take(Make(1, 2, 22));
  Take(Make(1, 3, 23));
  EXPECT_EQ(Verdict(Make(1, 4, 24)), "PROTOCOL");  // max_tokens is 4
  EXPECT_EQ(delivered_.tokens(), 6u);
}

TEST_F(DeliveredTest, EverythingIsOverWithTheLastChoicesEnd) {
  EXPECT_FALSE(delivered_.EndsAll(Make(1, 1, 21, kLength)));
  EXPECT_FALSE(delivered_.EndsAll(Make(0, 1, 11, kStop)));  // known
  Take(Make(1, 1, 21, kLength));
  EXPECT_FALSE(delivered_.EndsAll(Make(2, 0, 30)));
  EXPECT_TRUE(delivered_.EndsAll(Make(2, 0, 30, kLength)));
}

TEST(DeliveredTimesTest, GapsAreBetweenTokensOfOneChoice) {
  Delivered delivered(2, kPrompt, 4);
  const auto at = [](int seconds) { return Time(std::chrono::seconds(seconds)); };
  EXPECT_FALSE(delivered.Add(Make(0, 0, 1), at(1)).has_value());
  EXPECT_FALSE(delivered.Add(Make(1, 0, 2), at(5)).has_value());
  EXPECT_FALSE(delivered.went_on());
  EXPECT_EQ(delivered.Add(Make(0, 1, 3), at(7)), Duration(std::chrono::seconds(6)));
  EXPECT_TRUE(delivered.went_on());
}

}  // namespace
}  // namespace baton::router
