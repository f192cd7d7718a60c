#include "engine/scheduler.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using std::chrono::seconds;

Candidate Decode(SequenceId id, StepId last_step) {
  return {.sequence = id, .pending = 1, .decoding = true, .started = true, .last_step = last_step};
}
Candidate Prefill(SequenceId id, int admitted_at, uint32_t pending, bool started) {
  return {.sequence = id,
          .admitted_at = Time(seconds(admitted_at)),
          .pending = pending,
          .started = started};
}

// "1:1s 2:7": sequence, tokens, whether it samples.
std::string Plan(const std::vector<Candidate>& candidates, const StepBudget& budget) {
  std::string out;
  for (const ScheduledItem& item : PlanStep(candidates, budget)) {
    out += (out.empty() ? "" : " ") + std::to_string(item.sequence) + ":" +
           std::to_string(item.tokens) + (item.sample ? "s" : "");
  }
  return out;
}
std::string Plan(const std::vector<Candidate>& candidates, uint32_t tokens, uint32_t max_running) {
  return Plan(candidates, StepBudget{tokens, tokens, tokens, max_running});
}

TEST(SchedulerTest, DecodesThenPromptsByAge) {
  EXPECT_EQ(Plan({Prefill(1, 5, 10, false), Prefill(2, 4, 10, false), Prefill(3, 9, 10, true),
                  Decode(4, 1)},
                 64, 8),
            "4:1s 2:10s 1:10s 3:10s");
}

TEST(SchedulerTest, TheBudgetCutsAPromptIntoChunks) {
  EXPECT_EQ(Plan({Decode(1, 1), Prefill(2, 0, 100, true), Prefill(3, 1, 60, false)}, 16, 8),
            "1:1s 2:15");
}

TEST(SchedulerTest, AShortPromptOvertakesALongOneWhichKeepsHalfOfTheStep) {
  const Candidate long_one = Prefill(1, 0, 100, true);
  EXPECT_EQ(Plan({long_one, Prefill(2, 1, 5, false)}, 16, 8), "1:11 2:5s");
  EXPECT_EQ(Plan({long_one, Prefill(2, 1, 50, false)}, 16, 8), "1:8 2:8");
  EXPECT_EQ(Plan({long_one, Prefill(2, 1, 50, false)}, 15, 8), "1:8 2:7");
  EXPECT_EQ(Plan({long_one, Prefill(2, 1, 51, false)}, 16, 8), "1:16");
  EXPECT_EQ(Plan({long_one, Prefill(2, 1, 5, false)}, 1, 8), "1:1");
  EXPECT_EQ(Plan({Decode(9, 1), long_one, Prefill(2, 1, 5, false)}, StepBudget{64, 64, 8, 8}),
            "9:1s 1:4 2:4");
}

TEST(SchedulerTest, OfThoseThatOvertakeTheOneWithTheFewestTokensIsFirst) {
  const std::vector<Candidate> prompts = {Prefill(1, 0, 100, true), Prefill(2, 1, 30, true),
                                          Prefill(3, 2, 10, false), Prefill(4, 3, 10, false),
                                          Prefill(5, 4, 90, false)};
  EXPECT_EQ(Plan(prompts, 16, 8), "1:8 3:8");
  EXPECT_EQ(Plan(prompts, 64, 8), "1:32 2:12 3:10s 4:10s");
  EXPECT_EQ(Plan(prompts, 180, 8), "1:100s 2:30s 3:10s 4:10s 5:30");
}

TEST(SchedulerTest, TheOldestIsSoByAgeThoughAnotherBeganBefore) {
  EXPECT_EQ(Plan({Prefill(1, 5, 100, true), Prefill(2, 0, 90, false)}, 64, 8), "2:64");
}

// Prompts that come step by step: (step, tokens). When each was done.
std::vector<uint32_t> DoneAt(std::vector<std::pair<uint32_t, uint32_t>> prompts, uint32_t tokens) {
  std::vector<uint32_t> done(prompts.size());
  size_t left = prompts.size();
  for (uint32_t step = 1; left > 0; ++step) {
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto [came, pending] = prompts[i];
      if (came >= step || pending == 0) continue;
      candidates.push_back(Prefill(i, static_cast<int>(i), pending, false));
    }
    for (const ScheduledItem& item : PlanStep(candidates, StepBudget{tokens, tokens, 0, 1000})) {
      prompts[item.sequence].second -= item.tokens;
      if (!item.sample) continue;
      done[item.sequence] = step;
      --left;
    }
  }
  return done;
}

TEST(SchedulerTest, HoweverManyOvertakeNobodyTakesMoreThanTwiceAsLongAsByAge) {
  constexpr uint32_t kTokens = 16;
  std::vector<std::pair<uint32_t, uint32_t>> prompts = {{0, 1000}, {0, 900}, {0, 300}};
  for (uint32_t step = 1; step < 400; ++step) prompts.emplace_back(step, 8 + step % 3);
  const std::vector<uint32_t> done = DoneAt(prompts, kTokens);
  uint32_t older = 0;
  for (uint32_t i = 0; i < 3; ++i) {
    older += prompts[i].second;
    EXPECT_LE(done[i], 2 * older / kTokens + i + 1) << i;
  }
  EXPECT_GT(done[0], 1900 / kTokens);  // they did overtake
  // Those that came while it ran.
  for (uint32_t i = 3; i < 50; ++i) EXPECT_LT(done[i], prompts[i].first + 30) << i;
}

TEST(SchedulerTest, NothingNewStartsWhenTheBatchIsFull) {
  EXPECT_EQ(Plan({Decode(1, 1), Decode(2, 1), Prefill(3, 0, 5, false)}, 64, 2), "1:1s 2:1s");
  EXPECT_EQ(Plan({Decode(1, 1), Prefill(3, 0, 5, false), Prefill(4, 1, 5, false)}, 64, 2),
            "1:1s 3:5s");
}

TEST(SchedulerTest, ASequenceHandedOverJoinsTheDecodesAtOnce) {
  Candidate fresh = Decode(3, 0);
  fresh.started = false;
  EXPECT_EQ(Plan({Prefill(1, 0, 100, true), Decode(2, 7), fresh}, 16, 8), "3:1s 2:1s 1:14");
}

TEST(SchedulerTest, DecodesTakeTurnsWhenTheBudgetIsShort) {
  EXPECT_EQ(Plan({Decode(1, 3), Decode(2, 2), Decode(3, 3)}, 2, 8), "2:1s 1:1s");
}

TEST(SchedulerTest, BesideDecodesPromptsGetTheirShareAndAloneAllOfTheStep) {
  const Candidate prompt = Prefill(2, 0, 100, true);
  const Candidate next = Prefill(3, 1, 100, false);
  EXPECT_EQ(Plan({Decode(1, 1), prompt, next}, StepBudget{64, 64, 10, 8}), "1:1s 2:10");
  EXPECT_EQ(Plan({Decode(1, 1), Prefill(2, 0, 4, true), next}, StepBudget{64, 64, 10, 8}),
            "1:1s 2:4s 3:6");
  EXPECT_EQ(Plan({Decode(1, 1), prompt, next}, StepBudget{64, 64, 0, 8}), "1:1s");
  EXPECT_EQ(Plan({prompt, next}, StepBudget{64, 64, 0, 8}), "2:64");
  EXPECT_EQ(Plan({Decode(1, 1), Decode(4, 1)}, StepBudget{64, 64, 0, 8}), "1:1s 4:1s");
}

TEST(SchedulerTest, MoreDecodesThanTokensLeaveAnEighthForAPrompt) {
  std::vector<Candidate> candidates = {Prefill(100, 0, 50, false)};
  for (SequenceId id = 1; id <= 20; ++id) candidates.push_back(Decode(id, id));
  EXPECT_EQ(Plan(candidates, StepBudget{8, 8, 8, 64}), "1:1s 2:1s 3:1s 4:1s 5:1s 6:1s 7:1s 100:1");
  EXPECT_EQ(Plan(candidates, StepBudget{16, 16, 1, 64}),
            "1:1s 2:1s 3:1s 4:1s 5:1s 6:1s 7:1s 8:1s 9:1s 10:1s 11:1s 12:1s 13:1s 14:1s 15:1s "
            "100:1");
}

TEST(SchedulerTest, AStepTooSmallToBeSharedIsTakenInTurns) {
  Candidate prompt = Prefill(9, 0, 50, true);
  prompt.last_step = 5;
  EXPECT_EQ(Plan({Decode(1, 4), Decode(2, 6), prompt}, 1, 8), "1:1s");
  EXPECT_EQ(Plan({Decode(1, 7), Decode(2, 6), prompt}, 1, 8), "9:1");
  EXPECT_EQ(Plan({Decode(1, 7), Decode(2, 6), prompt}, 2, 8), "2:1s 9:1");
  EXPECT_EQ(Plan({Decode(1, 7), Decode(2, 6), Prefill(9, 0, 50, false)}, 1, 1), "2:1s");
}

// One choice of a sequence that was handed over.
Candidate Fresh(SequenceId id, uint32_t choice, int admitted_at) {
  return {.sequence = id,
          .choice = choice,
          .admitted_at = Time(seconds(admitted_at)),
          .pending = 1,
          .decoding = true};
}

Candidate Choices(Candidate prompt, uint32_t n) {
  prompt.rows = n;
  return prompt;
}

TEST(SchedulerTest, ASequenceJoinsWithAllItsChoicesOrNotAtAll) {
  const std::vector<Candidate> candidates = {Decode(1, 1), Fresh(2, 0, 5), Fresh(2, 1, 5),
                                             Fresh(2, 2, 5)};
  EXPECT_EQ(Plan(candidates, 64, 3), "1:1s");
  EXPECT_EQ(Plan(candidates, 64, 4), "2:1s 2:1s 2:1s 1:1s");
}

TEST(SchedulerTest, APromptTakesThePlacesOfItsChoices) {
  EXPECT_EQ(Plan({Choices(Prefill(1, 0, 5, true), 3), Prefill(2, 1, 5, false)}, 64, 3), "1:5s");
  EXPECT_EQ(Plan({Choices(Prefill(1, 0, 5, true), 3), Prefill(2, 1, 5, false)}, 64, 4),
            "1:5s 2:5s");
}

TEST(SchedulerTest, NobodyOvertakesOneThatDoesNotFitYet) {
  const std::vector<Candidate> waiting = {Choices(Prefill(2, 3, 5, false), 4),
                                          Prefill(3, 4, 5, false), Fresh(4, 0, 5)};
  std::vector<Candidate> busy = waiting;
  busy.push_back(Decode(1, 1));
  EXPECT_EQ(Plan(busy, 64, 4), "1:1s");
  EXPECT_EQ(Plan(waiting, 64, 5), "2:5s 3:5s");
  // An older one does join.
  busy.push_back(Prefill(5, 2, 5, false));
  EXPECT_EQ(Plan(busy, 64, 4), "1:1s 5:5s");
}

TEST(SchedulerTest, MoreChoicesThanPlacesJoinAnEmptyBatch) {
  const Candidate big = Choices(Prefill(1, 0, 5, false), 16);
  EXPECT_EQ(Plan({big, Prefill(2, 1, 5, false)}, 64, 4), "1:5s");
  EXPECT_EQ(Plan({big, Decode(3, 1)}, 64, 4), "3:1s");
}

TEST(SchedulerTest, ChoicesTakeTurnsWhenTheBudgetIsShort) {
  std::vector<Candidate> candidates = {Decode(1, 3), Decode(1, 2), Decode(1, 3)};
  for (uint32_t i = 0; i < 3; ++i) candidates[i].choice = i;
  const std::vector<ScheduledItem> plan = PlanStep(candidates, StepBudget{2, 2, 2, 8});
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].choice, 1u);
  EXPECT_EQ(plan[1].choice, 0u);
}

}  // namespace
}  // namespace baton::engine
