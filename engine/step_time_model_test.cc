#include "engine/step_time_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace baton::engine {
namespace {

// Two cores and a small model; attention costs about twice what is typical.
constexpr StepTimes kMachine = {0.005, 0.00075, 0.001, 3e-7, 1e-6};

StepWork Decodes(uint32_t rows, uint32_t position) {
  StepWork work;
  for (uint32_t i = 0; i < rows; ++i) work.AddDecode(position);
  return work;
}
StepWork Prompt(uint32_t start, uint32_t tokens) {
  StepWork work;
  work.AddPrompt(start, tokens);
  return work;
}
StepWork Mixed(uint32_t rows, uint32_t position, uint32_t start, uint32_t tokens) {
  StepWork work = Decodes(rows, position);
  work.AddPrompt(start, tokens);
  return work;
}

// Steps as a worker runs them: prompts in chunks, decodes of up to 16 sequences that grow, both.
class Worker {
 public:
  explicit Worker(uint64_t seed) : random_(seed) {}

  StepWork Next() {
    const uint32_t phase = step_ / 50 % 3;
    const uint32_t rows = 1 + step_ / 7 % 16;
    const uint32_t tokens = phase == 2 ? 13 : 64u << (step_ / 5 % 4);
    const uint32_t position = 16 + step_ % 100 * 8;
    ++step_;
    if (phase == 0) return Decodes(rows, position);
    const uint32_t start = start_;
    start_ = start_ + tokens > 2048 ? 0 : start_ + tokens;
    return phase == 1 ? Prompt(start, tokens) : Mixed(rows, position, start, tokens);
  }

  // A time around `seconds`: lognormal, and of each ten steps so many are held up, tenfold.
  double Noisy(double seconds, double sigma, int held_up_of_ten) {
    const double held_up = std::uniform_int_distribution<>(0, 9)(random_) < held_up_of_ten ? 10 : 1;
    return seconds * held_up * std::exp(sigma * std::normal_distribution<>()(random_));
  }

 private:
  std::mt19937_64 random_;
  uint32_t step_ = 0;
  uint32_t start_ = 0;
};

struct Errors {
  double mean = 0;
  double worst = 0;
};

// Relative ones of predictions over the last half of so many steps.
Errors ErrorsOf(double sigma, int held_up_of_ten, uint64_t seed) {
  constexpr int kSteps = 1000;
  StepTimeModel model;
  Worker worker(seed);
  Errors errors;
  for (int i = 0; i < kSteps; ++i) {
    const StepWork work = worker.Next();
    const double truth = kMachine.Seconds(work);
    const double error = std::abs(model.Predict(work) / truth - 1);
    if (i >= kSteps / 2) {
      errors.mean += error / (kSteps / 2);
      errors.worst = std::max(errors.worst, error);
    }
    model.Record(work, worker.Noisy(truth, sigma, held_up_of_ten));
  }
  return errors;
}

TEST(StepWorkTest, KeysAreThePositionsUpToEachRow) {
  EXPECT_EQ(Prompt(0, 1).prompt_keys, 1u);
  EXPECT_EQ(Prompt(10, 3).prompt_keys, 11u + 12 + 13);
  EXPECT_EQ(Prompt(10, 3).prompt_tokens, 3u);
  EXPECT_EQ(Decodes(2, 10).decode_keys, 22u);
  EXPECT_EQ(Decodes(2, 10).decode_rows, 2u);
}

TEST(StepTimeModelTest, BeforeTheFirstStepNothingIsSaid) {
  const StepTimeModel model;
  EXPECT_FALSE(model.measured());
  EXPECT_EQ(model.Predict(Prompt(0, 64)), 0);
  EXPECT_EQ(model.times(), StepTimes());
}

TEST(StepTimeModelTest, TheFirstStepMeasuresTheMachineAndTheRestIsTypical) {
  StepTimeModel model;
  model.Record(Prompt(0, 64), 0.8);
  EXPECT_NEAR(model.Predict(Prompt(0, 64)), 0.8, 1e-9);
  EXPECT_FALSE(model.decodes_measured());
  const StepTimes& times = model.times();
  EXPECT_NEAR(times.step / times.prompt_token, StepTimeModel::kTypical.step, 1e-6);
  EXPECT_NEAR(times.decode_row / times.prompt_token, StepTimeModel::kTypical.decode_row, 1e-6);
}

TEST(StepTimeModelTest, LearnsAMachineFromItsSteps) {
  const Errors errors = ErrorsOf(0, 0, 1);
  EXPECT_LT(errors.mean, 0.02);
  EXPECT_LT(errors.worst, 0.15);
}

TEST(StepTimeModelTest, LearnsItThroughNoise) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Errors little = ErrorsOf(0.05, 0, seed);
    EXPECT_LT(little.mean, 0.03) << seed;
    EXPECT_LT(little.worst, 0.2) << seed;
    const Errors much = ErrorsOf(0.2, 0, seed);
    EXPECT_LT(much.mean, 0.08) << seed;
    EXPECT_LT(much.worst, 0.4) << seed;
  }
}

// The mean of the steps would be off by what was added: 0.9 and 1.8 times the truth.
TEST(StepTimeModelTest, StepsThatWereHeldUpHardlyCount) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Errors one = ErrorsOf(0.05, 1, seed);
    EXPECT_LT(one.mean, 0.05) << seed;
    EXPECT_LT(one.worst, 0.2) << seed;
    const Errors two = ErrorsOf(0.05, 2, seed);
    EXPECT_LT(two.mean, 0.1) << seed;
    EXPECT_LT(two.worst, 0.3) << seed;
  }
}

TEST(StepTimeModelTest, OneStepOfAMinuteChangesLittle) {
  StepTimeModel model;
  Worker worker(1);
  for (int i = 0; i < 300; ++i) {
    const StepWork work = worker.Next();
    model.Record(work, worker.Noisy(kMachine.Seconds(work), 0.05, 0));
  }
  const double before = model.Predict(Decodes(8, 200));
  model.Record(Decodes(8, 200), 60);
  EXPECT_NEAR(model.Predict(Decodes(8, 200)) / before, 1, 0.03);
}

TEST(StepTimeModelTest, AFirstStepThatWasHeldUpIsSoonForgotten) {
  StepTimeModel model;
  model.Record(Prompt(0, 64), 10 * kMachine.Seconds(Prompt(0, 64)));
  for (int i = 0; i < 8; ++i) model.Record(Prompt(0, 64), kMachine.Seconds(Prompt(0, 64)));
  EXPECT_NEAR(model.Predict(Prompt(0, 64)) / kMachine.Seconds(Prompt(0, 64)), 1, 0.1);
}

TEST(StepTimeModelTest, AMachineThatIsSharedFromNowOnIsFollowedAndSoIsItsReturn) {
  StepTimeModel model;
  Worker worker(1);
  const StepWork work = Decodes(8, 100);
  const auto run = [&](double slower, int steps) {
    for (int i = 0; i < steps; ++i) {
      model.Record(work, worker.Noisy(slower * kMachine.Seconds(work), 0.05, 0));
    }
    return model.Predict(work) / kMachine.Seconds(work);
  };
  EXPECT_NEAR(run(1, 200), 1, 0.05);
  EXPECT_NEAR(run(2, 80), 2, 0.2);
  EXPECT_NEAR(run(1, 60), 1, 0.1);
}

TEST(StepTimeModelTest, ALongTimeOfDecodesDoesNotWipeOutThePrompts) {
  StepTimeModel model;
  Worker worker(1);
  for (int i = 0; i < 300; ++i) {
    const StepWork work = worker.Next();
    model.Record(work, kMachine.Seconds(work));
  }
  for (int i = 0; i < 20000; ++i) {
    const StepWork work = Decodes(8, 50 + i % 500);
    model.Record(work, worker.Noisy(kMachine.Seconds(work), 0.05, 0));
  }
  for (const StepWork& work : {Prompt(0, 256), Prompt(1024, 128), Decodes(2, 100)}) {
    EXPECT_NEAR(model.Predict(work) / kMachine.Seconds(work), 1, 0.15);
  }
}

// A noisy fit to short prompts alone would say anything from nothing to ten times as much.
TEST(StepTimeModelTest, APromptOfThousandsIsPredictedFromShortOnes) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    StepTimeModel model;
    Worker worker(seed);
    for (uint32_t i = 0; i < 300; ++i) {
      const StepWork work = Prompt(0, 20 + i * 37 % 200);
      model.Record(work, worker.Noisy(kMachine.Seconds(work), 0.2, 0));
    }
    double predicted = 0, truth = 0;
    for (uint32_t start = 0; start < 8192; start += 256) {
      predicted += model.Predict(Prompt(start, 256));
      truth += kMachine.Seconds(Prompt(start, 256));
    }
    EXPECT_GT(predicted, 0.5 * truth) << seed;
    EXPECT_LT(predicted, 1.5 * truth) << seed;
  }
}

TEST(StepTimeModelTest, NothingUnusableIsLearned) {
  StepTimeModel model;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double seconds : {0.0, -1.0, nan, infinity, -infinity, 1e300}) {
    model.Record(Prompt(0, 64), seconds);
    EXPECT_FALSE(model.measured()) << seconds;
  }
  model.Record({}, 1);
  EXPECT_FALSE(model.measured());
}

// Whatever is recorded.
TEST(StepTimeModelTest, PredictionsAreFiniteAndNeverFallWhenWorkIsAdded) {
  std::mt19937_64 random(7);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int run = 0; run < 20; ++run) {
    StepTimeModel model;
    for (int i = 0; i < 500; ++i) {
      const uint32_t rows = below(3) == 0 ? 0 : below(200);
      const uint32_t tokens = below(3) == 0 ? 0 : below(2000);
      // From 10 ns to an hour, with no regard to the work.
      const double seconds = std::pow(10, -8 + 11.5 * (below(1000) / 1000.0));
      model.Record(Mixed(rows, below(100000), below(100000), tokens), seconds);
      const StepTimes& t = model.times();
      for (const double part : {t.step, t.prompt_token, t.decode_row, t.prompt_key, t.decode_key}) {
        ASSERT_TRUE(std::isfinite(part) && part >= 0) << part;
      }
    }
    const double some = model.Predict(Mixed(3, 100, 50, 20));
    EXPECT_GE(model.Predict(Mixed(4, 100, 50, 20)), some);
    EXPECT_GE(model.Predict(Mixed(3, 101, 50, 20)), some);
    EXPECT_GE(model.Predict(Mixed(3, 100, 51, 20)), some);
    EXPECT_GE(model.Predict(Mixed(3, 100, 50, 21)), some);
  }
}

TEST(StepTimeModelTest, TheSameStepsGiveTheSameBits) {
  StepTimeModel first, second;
  for (StepTimeModel* const model : {&first, &second}) {
    Worker worker(3);
    for (int i = 0; i < 200; ++i) {
      const StepWork work = worker.Next();
      model->Record(work, worker.Noisy(kMachine.Seconds(work), 0.2, 1));
    }
  }
  EXPECT_EQ(first.times(), second.times());
}

TEST(StepTimeModelTest, TokensWithinATimeAreTheMostThatFit) {
  StepTimeModel model;
  Worker worker(1);
  for (int i = 0; i < 300; ++i) {
    const StepWork work = worker.Next();
    model.Record(work, kMachine.Seconds(work));
  }
  for (const uint32_t rows : {0u, 1u, 8u}) {
    for (const uint32_t start : {0u, 1000u}) {
      for (const double seconds : {0.001, 0.02, 0.1, 0.25}) {
        const StepWork beside = Decodes(rows, 100);
        const uint32_t most = 512;
        const uint32_t fit = model.PromptTokensWithin(seconds, beside, start, most);
        ASSERT_LE(fit, most);
        if (fit > 0) {
          EXPECT_LE(model.Predict(Mixed(rows, 100, start, fit)), seconds);
        }
        if (fit < most) {
          EXPECT_GT(model.Predict(Mixed(rows, 100, start, fit + 1)), seconds);
        }
      }
    }
  }
  EXPECT_EQ(model.PromptTokensWithin(1e9, {}, 0, 512), 512u);
  EXPECT_EQ(model.PromptTokensWithin(1e9, {}, 0, 0), 0u);
}

}  // namespace
}  // namespace baton::engine
