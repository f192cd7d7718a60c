#include "engine/step_rates.h"

#include <chrono>

#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint32_t kStep = 64;

// A worker on which a step costs 10.5 ms, a decode row and a prompt token 1 ms each.
Duration Took(uint32_t prefill_tokens, uint32_t decode_rows) {
  return microseconds(10500) + milliseconds(prefill_tokens + decode_rows);
}

TEST(StepRatesTest, DecodesRunAloneBeforeAnythingIsKnownAndAfterSoManyMixedSteps) {
  StepRates rates;
  EXPECT_EQ(rates.PrefillBesideDecodes(kStep), 0);
  rates.Record(0, 8, Took(0, 8));
  for (uint32_t i = 0; i < StepRates::kMixedSteps; ++i) {
    EXPECT_GT(rates.PrefillBesideDecodes(kStep), 0) << i;
    rates.Record(8, 8, Took(8, 8));
  }
  EXPECT_EQ(rates.PrefillBesideDecodes(kStep), 0);
  rates.Record(0, 8, Took(0, 8));
  EXPECT_GT(rates.PrefillBesideDecodes(kStep), 0);
}

TEST(StepRatesTest, AMixedStepIsPlannedToStretchAStepOfDecodesBySoMuch) {
  StepRates rates;
  rates.Record(kStep, 0, Took(kStep, 0));  // 64 tokens in 74.5 ms
  rates.Record(0, 8, Took(0, 8));          // 18.5 ms
  // 0.75 x 18.5 / (74.5 / 64), until a mixed step is seen.
  EXPECT_EQ(rates.PrefillBesideDecodes(kStep), 11);
  for (int i = 0; i < 10; ++i) {
    const uint32_t fit = rates.PrefillBesideDecodes(kStep);
    rates.Record(fit, 8, Took(fit, 8));
  }
  EXPECT_EQ(rates.PrefillBesideDecodes(kStep), 13);
}

TEST(StepRatesTest, APromptGetsItsLeastHoweverSlowItIs) {
  StepRates rates;
  rates.Record(0, 1, microseconds(10));
  rates.Record(8, 1, milliseconds(900));
  EXPECT_EQ(rates.PrefillBesideDecodes(kStep), 8);
  EXPECT_EQ(rates.PrefillBesideDecodes(4), 1);
}

TEST(StepRatesTest, AndNeverMoreThanTheStep) {
  StepRates rates;
  rates.Record(0, 8, milliseconds(500));
  rates.Record(8, 8, milliseconds(501));
  EXPECT_EQ(rates.PrefillBesideDecodes(kStep), kStep);
}

TEST(StepRatesTest, AClockThatStandsStillHoldsNothingBack) {
  StepRates rates;
  rates.Record(0, 8, Duration(0));
  rates.Record(8, 8, Duration(0));
  EXPECT_EQ(rates.PrefillBesideDecodes(kStep), kStep);
}

}  // namespace
}  // namespace baton::engine
