#include "engine/step_planner.h"

#include <chrono>

#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint32_t kStep = 64;

Duration Scaled(const StepTimes& machine, const StepWork& work) {
  return duration_cast<Duration>(std::chrono::duration<double>(machine.Seconds(work)));
}

// A worker on which a step costs 10.5 ms, a decode row and a prompt token 1 ms each.
constexpr StepTimes kMachine = {.step = 0.0105, .prompt_token = 0.001, .decode_row = 0.001};

StepWork Work(uint32_t prompt_tokens, uint32_t decode_rows, uint32_t start = 0) {
  StepWork work;
  for (uint32_t i = 0; i < decode_rows; ++i) work.AddDecode(20);
  if (prompt_tokens > 0) work.AddPrompt(start, prompt_tokens);
  return work;
}

void RunStep(StepPlanner& planner, const StepWork& work, const StepTimes& machine = kMachine) {
  planner.Record(work, Scaled(machine, work));
}

uint32_t Beside(const StepPlanner& planner, uint32_t rows) {
  return planner.PromptsBesideDecodes({.decodes = Work(0, rows)});
}

TEST(StepPlannerTest, DecodesRunAloneBeforeAnythingIsKnownAndAfterSoManyMixedSteps) {
  StepPlanner planner({.step_tokens = kStep});
  EXPECT_EQ(Beside(planner, 8), 0);
  RunStep(planner, Work(0, 8));
  for (uint32_t i = 0; i < StepPlanner::kMixedSteps; ++i) {
    EXPECT_GT(Beside(planner, 8), 0) << i;
    RunStep(planner, Work(8, 8));
  }
  EXPECT_EQ(Beside(planner, 8), 0);
  RunStep(planner, Work(0, 8));
  EXPECT_GT(Beside(planner, 8), 0);
}

TEST(StepPlannerTest, AMixedStepIsPlannedToStretchAStepOfDecodesBySoMuch) {
  StepPlanner planner({.step_tokens = kStep});
  for (int i = 0; i < 20; ++i) {
    RunStep(planner, Work(0, 8));  // 18.5 ms
    RunStep(planner, Work(Beside(planner, 8), 8));
  }
  EXPECT_NEAR(Beside(planner, 8), 0.75 * 18.5, 1);
  // Other batches follow, and long contexts leave room for less.
  for (uint32_t rows = 1; rows < 32; ++rows) {
    RunStep(planner, Work(0, rows));
    RunStep(planner, Work(Beside(planner, rows), rows));
  }
  EXPECT_NEAR(Beside(planner, 24), 0.75 * 34.5, 3);
}

TEST(StepPlannerTest, AnIntervalIsWhatAStepMayLastWithThoseThatAreComing) {
  StepPlanner planner({.step_tokens = kStep});
  EXPECT_EQ(planner.Interval({.decodes = Work(0, 1), .waiting = 4}), Duration{0});
  for (uint32_t i = 0; i < 60; ++i) RunStep(planner, Work(0, 1 + i % 16));
  const auto seconds = [&](uint32_t rows, uint32_t coming) {
    return ToSeconds(planner.Interval({.decodes = Work(0, rows), .waiting = coming}));
  };
  EXPECT_NEAR(seconds(1, 4), 1.75 * 0.0155, 0.001);
  EXPECT_NEAR(seconds(8, 4), 1.75 * 0.0225, 0.001);
  EXPECT_EQ(seconds(9, 4), 0);
  EXPECT_EQ(seconds(1, 0), 0);
  EXPECT_EQ(seconds(0, 4), 0);
}

TEST(StepPlannerTest, WhoWaitsCountsAsIfItDecodedAlready) {
  StepPlanner planner({.step_tokens = kStep});
  for (uint32_t i = 0; i < 60; ++i) {
    const uint32_t rows = 1 + i % 16;
    RunStep(planner, Work(0, rows));
    RunStep(planner, Work(Beside(planner, rows), rows));
  }
  // One decode of 11.5 ms among 15 that wait: a step of all 16 will take 26.5 ms.
  const uint32_t alone = Beside(planner, 1);
  const uint32_t crowd = planner.PromptsBesideDecodes({.decodes = Work(0, 1), .waiting = 15});
  EXPECT_NEAR(alone, 1.75 * 11.5 - 11.5, 2);
  EXPECT_NEAR(crowd, 1.75 * 26.5 - 11.5, 3);
  EXPECT_GT(planner.PromptTokensPerSecond({.decodes = Work(0, 1), .waiting = 15}),
            1.2 * planner.PromptTokensPerSecond({.decodes = Work(0, 1)}));
}

TEST(StepPlannerTest, APromptGetsItsLeastHoweverSlowItIs) {
  StepPlanner planner({.step_tokens = kStep});
  planner.Record(Work(0, 1), microseconds(10));
  planner.Record(Work(8, 1), milliseconds(900));
  EXPECT_EQ(Beside(planner, 1), LeastPrefill(kStep));
  EXPECT_EQ(LeastPrefill(kStep), 8);
  EXPECT_EQ(LeastPrefill(512), 8);
  EXPECT_EQ(LeastPrefill(4), 1);
}

TEST(StepPlannerTest, AndNeverMoreThanTheStep) {
  StepPlanner planner({.step_tokens = kStep});
  for (int i = 0; i < 10; ++i) {
    planner.Record(Work(0, 8), milliseconds(500));
    planner.Record(Work(8, 8), milliseconds(501));
  }
  EXPECT_EQ(Beside(planner, 8), kStep);
}

TEST(StepPlannerTest, AClockThatStandsStillHoldsNothingBack) {
  StepPlanner planner({.step_tokens = kStep, .planned_step = milliseconds(250)});
  planner.Record(Work(0, 8), Duration(0));
  planner.Record(Work(64, 8), Duration(0));
  EXPECT_EQ(Beside(planner, 8), kStep);
  EXPECT_EQ(planner.PromptsAlone(0), kStep);
  EXPECT_EQ(planner.PromptTokensPerSecond({}), 0);
  EXPECT_EQ(planner.DecodeStepSeconds({}), 0);
}

TEST(StepPlannerTest, AStepThatIsNotPlannedIsFilled) {
  StepPlanner planner({.step_tokens = 512});
  EXPECT_EQ(planner.PromptsAlone(0), 512u);
  planner.Record(Work(512, 0), std::chrono::seconds(100));
  EXPECT_EQ(planner.PromptsAlone(0), 512u);
}

TEST(StepPlannerTest, PlannedStepsOfPromptsGrowTwofoldUpToTheMost) {
  StepPlanner planner({.step_tokens = 512, .planned_step = milliseconds(250)});
  constexpr StepTimes kFast = {.step = 0.001, .prompt_token = 0.0001};
  for (const uint32_t tokens : {64u, 128u, 256u, 512u, 512u}) {
    EXPECT_EQ(planner.PromptsAlone(0), tokens);
    RunStep(planner, Work(tokens, 0), kFast);
  }
  // A short prompt since then does not make the next one begin again.
  RunStep(planner, Work(5, 0), kFast);
  EXPECT_EQ(planner.PromptsAlone(0), 512u);
}

TEST(StepPlannerTest, AndEndWhereTheyAreToLastSoLong) {
  StepPlanner planner({.step_tokens = 512, .planned_step = milliseconds(250)});
  for (int i = 0; i < 20; ++i) RunStep(planner, Work(planner.PromptsAlone(0), 0));
  // 239 fit; whole units of them.
  EXPECT_EQ(planner.PromptsAlone(0), 224u);
  EXPECT_EQ(planner.PromptsAlone(0) % StepPlanner::kPromptUnit, 0u);
  EXPECT_LE(Scaled(kMachine, Work(planner.PromptsAlone(0), 0)), milliseconds(255));
}

TEST(StepPlannerTest, DeepInAPromptFewerTokensFit) {
  constexpr StepTimes kLong = {.step = 0.01, .prompt_token = 0.0005, .prompt_key = 3e-7};
  StepPlanner planner({.step_tokens = 512, .planned_step = milliseconds(250)});
  for (int i = 0; i < 40; ++i) {
    const uint32_t start = 256 * (i % 8);
    RunStep(planner, Work(planner.PromptsAlone(start), 0, start), kLong);
  }
  EXPECT_GT(planner.PromptsAlone(0), planner.PromptsAlone(2000));
  const uint32_t deep = planner.PromptsAlone(2000);
  EXPECT_NEAR(kLong.Seconds(Work(deep, 0, 2000)), 0.25, 0.03);
}

TEST(StepPlannerTest, ASlowMachineStillRunsAUnitAStep) {
  StepPlanner planner({.step_tokens = 512, .planned_step = milliseconds(250)});
  planner.Record(Work(64, 0), std::chrono::seconds(60));
  EXPECT_EQ(planner.PromptsAlone(0), StepPlanner::kPromptUnit);
  StepPlanner tiny({.step_tokens = 7, .planned_step = milliseconds(250)});
  tiny.Record(Work(7, 0), std::chrono::seconds(60));
  EXPECT_EQ(tiny.PromptsAlone(0), 7u);
}

TEST(StepPlannerTest, TheRateOfPromptsIsLowerBesideDecodes) {
  StepPlanner planner({.step_tokens = kStep});
  EXPECT_EQ(planner.PromptTokensPerSecond({}), 0);
  for (int i = 0; i < 20; ++i) {
    RunStep(planner, Work(kStep, 0));
    RunStep(planner, Work(16, 0));
    EXPECT_EQ(planner.DecodeStepSeconds({}) > 0, i > 0);
    RunStep(planner, Work(0, 8));
    RunStep(planner, Work(0, 2));
    RunStep(planner, Work(13, 8));
  }
  EXPECT_NEAR(planner.PromptTokensPerSecond({}), 64 / 0.0745, 40);
  // 13 in 31.5 ms, and a sixteenth of 18.5 ms.
  EXPECT_NEAR(planner.PromptTokensPerSecond({.decodes = Work(0, 8)}), 13 / 0.0327, 40);
  EXPECT_NEAR(planner.DecodeStepSeconds(Work(0, 8)), 0.0185, 0.001);
  EXPECT_NEAR(planner.DecodeStepSeconds({}), 0.0115, 0.001);
}

TEST(StepPlannerTest, BothBudgetsComeTogether) {
  StepPlanner planner({.step_tokens = 512, .planned_step = milliseconds(250)});
  for (int i = 0; i < 20; ++i) {
    RunStep(planner, Work(planner.PromptsAlone(0), 0));
    RunStep(planner, Work(0, 8));
    RunStep(planner, Work(8, 8));
  }
  const StepOutlook outlook{.decodes = Work(0, 8), .prompt_start = 100};
  const StepBudget budget = planner.Budget(outlook);
  EXPECT_EQ(budget.tokens, 512u);
  EXPECT_EQ(budget.prefill_alone, planner.PromptsAlone(100));
  EXPECT_EQ(budget.prefill_beside_decodes, planner.PromptsBesideDecodes(outlook));
  EXPECT_LT(budget.prefill_beside_decodes, budget.prefill_alone);
}

}  // namespace
}  // namespace baton::engine
