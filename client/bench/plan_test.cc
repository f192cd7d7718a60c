#include "client/bench/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace baton::client {
namespace {

TEST(LengthsTest, TakesOneNumberOrARange) {
  EXPECT_EQ(ParseLengths("f", "7")->least, 7u);
  EXPECT_EQ(ParseLengths("f", "7")->most, 7u);
  EXPECT_EQ(ParseLengths("f", "7..9")->least, 7u);
  EXPECT_EQ(ParseLengths("f", "7..9")->most, 9u);
  EXPECT_EQ(ParseLengths("output-tokens", "9..7").status().message(),
            "--output-tokens is 9..7; must be N or A..B from 1 to 1000000");
  for (const char* text :
       {"", "0", "-1", "1000001", "a", "1..", "..2", "1...2", "1-2", "1.5", "99999999999"}) {
    EXPECT_FALSE(ParseLengths("f", text).ok()) << text;
  }
}

TEST(LengthsTest, DrawsEveryLengthOfTheRangeAndNoOther) {
  SeededRandom random(1);
  std::set<uint32_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(Lengths{3, 6}.Draw(random));
  EXPECT_EQ(seen, (std::set<uint32_t>{3, 4, 5, 6}));
}

PlanOptions Options() {
  PlanOptions options;
  options.requests = 1000;
  options.prompt_tokens = Lengths{10, 20};
  options.output_tokens = Lengths{5, 5};
  options.seed = 3;
  return options;
}

Plan MustPlan(const PlanOptions& options, const Trace* trace = nullptr) {
  const auto plan = MakePlan(options, trace);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : Plan();
}

std::string Refusal(const PlanOptions& options, const Trace* trace = nullptr) {
  return std::string(MakePlan(options, trace).status().message());
}

Trace Timed() { return {{{100, 1000, 9}, {103, 20, 8}, {103, 30, 700}}, true, 0}; }

TEST(PlanTest, APoissonProcessHasItsRateAndItsSpread) {
  PlanOptions options = Options();
  options.rate = 50;
  options.requests = 20000;
  const Plan plan = MustPlan(options);
  double sum = 0, squares = 0, before = 0;
  for (const PlannedRequest& request : plan.requests) {
    const double gap = request.at_seconds - before;
    ASSERT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
    before = request.at_seconds;
  }
  const double n = static_cast<double>(plan.requests.size());
  const double mean = sum / n;
  // An exponential gap deviates by its mean: 5 standard errors.
  EXPECT_NEAR(mean, 0.02, 5 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(squares / n - mean * mean, 0.0004, 0.00004);
}

TEST(PlanTest, TheSeedDecidesEverything) {
  PlanOptions options = Options();
  options.rate = 50;
  const Plan plan = MustPlan(options);
  const Plan same = MustPlan(options);
  options.seed = 4;
  const Plan other = MustPlan(options);
  size_t equal = 0;
  for (size_t i = 0; i < plan.requests.size(); ++i) {
    EXPECT_EQ(plan.requests[i].at_seconds, same.requests[i].at_seconds);
    EXPECT_EQ(plan.requests[i].prompt_tokens, same.requests[i].prompt_tokens);
    if (plan.requests[i].at_seconds == other.requests[i].at_seconds) ++equal;
  }
  EXPECT_EQ(equal, 0u);
}

TEST(PlanTest, LengthsStayWhenTimesChange) {
  PlanOptions options = Options();
  options.rate = 50;
  const Plan slow = MustPlan(options);
  options.rate.reset();
  options.concurrency = 4;
  const Plan closed = MustPlan(options);
  for (size_t i = 0; i < slow.requests.size(); ++i) {
    EXPECT_EQ(slow.requests[i].prompt_tokens, closed.requests[i].prompt_tokens);
    EXPECT_EQ(closed.requests[i].at_seconds, 0);
  }
}

TEST(PlanTest, ATraceIsReplayedFasterFromItsFirstRequest) {
  const Trace trace = Timed();
  PlanOptions options;
  options.speed = 10;
  const Plan plan = MustPlan(options, &trace);
  ASSERT_EQ(plan.requests.size(), 3u);
  EXPECT_EQ(plan.requests[0].at_seconds, 0);
  EXPECT_DOUBLE_EQ(plan.requests[1].at_seconds, 0.3);
  EXPECT_EQ(plan.requests[2].output_tokens, 700u);
  EXPECT_EQ(plan.cut, 0u);
  options.requests = 2;
  EXPECT_EQ(MustPlan(options, &trace).requests.size(), 2u);
}

TEST(PlanTest, JitterSpreadsATickWithinItsBound) {
  Trace trace;
  trace.timed = true;
  trace.rows.assign(1000, {5, 10, 10});
  PlanOptions options;
  options.jitter = 3;
  options.speed = 2;
  const Plan plan = MustPlan(options, &trace);
  EXPECT_TRUE(
      std::is_sorted(plan.requests.begin(), plan.requests.end(),
                     [](const auto& a, const auto& b) { return a.at_seconds < b.at_seconds; }));
  EXPECT_LT(plan.requests.front().at_seconds, 0.1);
  EXPECT_GT(plan.requests.back().at_seconds, 1.4);
  EXPECT_LT(plan.requests.back().at_seconds, 1.5);
}

TEST(PlanTest, LengthsAreCutToTheirBoundsAndTheContext) {
  const Trace trace = Timed();
  PlanOptions options;
  options.context = 512;
  options.max_prompt_tokens = 400;
  const Plan plan = MustPlan(options, &trace);
  EXPECT_EQ(plan.requests[0].prompt_tokens, 400u);
  EXPECT_EQ(plan.requests[0].output_tokens, 9u);
  EXPECT_EQ(plan.requests[1].prompt_tokens, 20u);
  EXPECT_EQ(plan.requests[2].prompt_tokens, 30u);
  EXPECT_EQ(plan.requests[2].output_tokens, 482u);
  EXPECT_EQ(plan.cut, 2u);
  options.max_prompt_tokens = kMaxLength;
  EXPECT_EQ(MustPlan(options, &trace).requests[0].prompt_tokens, 511u);
  EXPECT_EQ(MustPlan(options, &trace).requests[0].output_tokens, 1u);
}

TEST(PlanTest, ATraceWithoutTimesGivesLengthsRoundAndRound) {
  const Trace trace = {{{0, 4, 40}, {0, 5, 50}}, false, 0};
  PlanOptions options;
  options.concurrency = 1;
  options.requests = 3;
  const Plan plan = MustPlan(options, &trace);
  ASSERT_EQ(plan.requests.size(), 3u);
  EXPECT_EQ(plan.requests[2].prompt_tokens, 4u);
  EXPECT_EQ(plan.requests[1].output_tokens, 50u);
}

TEST(PlanTest, RefusesWhatDoesNotSayWhenOrHowLong) {
  const Trace timed = Timed();
  const Trace untimed = {{{0, 4, 40}}, false, 0};
  PlanOptions options = Options();
  EXPECT_EQ(Refusal(options), "give one of --concurrency, --rate and --trace");
  options.rate = 1;
  EXPECT_EQ(Refusal(options, &timed),
            "--rate and --trace: the trace has times of its own; give one of them");
  options.concurrency = 1;
  EXPECT_EQ(Refusal(options), "--concurrency and --rate: give one of them");
  options.rate.reset();
  options.output_tokens.reset();
  EXPECT_EQ(Refusal(options), "--prompt-tokens and --output-tokens: missing");
  options.requests.reset();
  EXPECT_EQ(Refusal(options), "--requests: missing");
  EXPECT_EQ(Refusal(PlanOptions(), &untimed),
            "--trace: has no times; give --rate or --concurrency too");
  PlanOptions more;
  more.requests = 4;
  EXPECT_EQ(Refusal(more, &timed), "--requests: must not be more than the trace has");
}

TEST(PromptTest, HasItsLengthWithinTheVocabularyAndDiffersByIndexAndSeed) {
  const std::vector<int32_t> prompt = MakePrompt(1, 0, 5000, 300);
  EXPECT_EQ(prompt.size(), 5000u);
  EXPECT_EQ(*std::min_element(prompt.begin(), prompt.end()), 0);
  EXPECT_EQ(*std::max_element(prompt.begin(), prompt.end()), 299);
  EXPECT_EQ(prompt, MakePrompt(1, 0, 5000, 300));
  EXPECT_NE(prompt, MakePrompt(1, 1, 5000, 300));
  EXPECT_NE(prompt, MakePrompt(2, 0, 5000, 300));
}

}  // namespace
}  // namespace baton::client
