// Room by age: sequences grow, the youngest gives way, and nobody's tokens change.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_fixture.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using std::chrono::milliseconds;

// An engine in a pool of so many blocks, and which sequences computed something twice.
struct Small {
  explicit Small(uint32_t blocks, RoomHolder* others = nullptr, uint32_t step_tokens = 64)
      : f({.engine = {.step_tokens = step_tokens, .context_length = 512},
           .blocks = blocks,
           .model = {.on_step = [this](const Step& step) { Note(step); }},
           .others = others}) {}

  void Note(const Step& step) {
    for (const StepItem& item : step.items) {
      const uint32_t choice = item.samples.empty() ? 0 : item.samples.front().choice;
      uint32_t& end = ends[{item.sequence, choice}];
      if (item.start_position < end) again.insert(item.sequence);
      end = item.start_position + static_cast<uint32_t>(item.tokens.size());
      computed[item.sequence] += static_cast<uint32_t>(item.tokens.size());
    }
  }
  // Older ones have the larger age.
  SequenceId Add(DecoderState state, int age_ms) {
    state.age = milliseconds(age_ms);
    state.stop.ignore_eos = true;
    const absl::StatusOr<SequenceId> id = f.Add(state);
    EXPECT_TRUE(id.ok()) << id.status();
    return states.emplace(id.value_or(0), state).first->first;
  }
  // Until somebody waits with nothing in its hands.
  void RunUntilPreempted(uint32_t count = 1) {
    while (f.engine.Load().preempted < count) ASSERT_TRUE(RunOne());
  }
  bool RunOne() {
    const bool ran = f.world.RunOne();
    EXPECT_TRUE(f.pool.CheckIntegrity().ok()) << f.pool.CheckIntegrity();
    EXPECT_TRUE(f.cache.CheckIntegrity().ok()) << f.cache.CheckIntegrity();
    return ran;
  }
  // To the end, and everybody's tokens are right.
  void Finish() {
    while (RunOne()) continue;
    for (const auto& [id, state] : states) ExpectRight(id, state);
    EXPECT_TRUE(f.engine.idle());
    EXPECT_EQ(f.pool.free_blocks(), f.pool.capacity());
  }
  void ExpectRight(SequenceId id, const DecoderState& state) {
    for (uint32_t choice = 0; choice < state.choices.size(); ++choice) {
      EXPECT_EQ(f.seen[id].ids(choice), f.Expected(state, choice)) << id << ", " << choice;
    }
    EXPECT_TRUE(f.seen[id].finished());
    EXPECT_FALSE(f.seen[id].failed.has_value());
  }

  std::map<std::pair<SequenceId, uint32_t>, uint32_t> ends;
  std::set<SequenceId> again;
  std::map<SequenceId, uint32_t> computed;
  std::map<SequenceId, DecoderState> states;
  EngineFixture f;
};

DecoderState Named(DecoderState state) {
  state.cache_namespace = "space";
  return state;
}

TEST(PreemptionTest, ASequenceTakesABlockWhenItNeedsIt) {
  Small s(64);
  s.Add(FixtureState(FixturePrompt(40, 1), 100, 3), 0);
  std::map<uint32_t, uint32_t> held;  // by position of the token
  s.f.on_token = [&](const TokenEvent& e) { held[e.position] = 64 - s.f.pool.free_blocks()[0]; };
  s.Finish();
  EXPECT_EQ(held[40], 4u);  // of 64 slots: a block of growth to begin with
  EXPECT_EQ(held[64], 4u);
  EXPECT_EQ(held[65], 5u);  // the token at 64 took a slot
  EXPECT_EQ(held[120], 8u);
  EXPECT_EQ(s.f.metrics.preemptions.Value(), 0);
}

TEST(PreemptionTest, TheYoungestGivesWayWhoeverCameFirst) {
  for (const bool young_first : {false, true}) {
    Small s(12);
    const DecoderState a = FixtureState(FixturePrompt(40, 1), 80, 3);
    const DecoderState b = FixtureState(FixturePrompt(40, 2), 80, 4);
    const SequenceId first = s.Add(a, young_first ? 10 : 20);
    const SequenceId second = s.Add(b, young_first ? 20 : 10);
    s.Finish();
    EXPECT_EQ(s.again, (std::set<SequenceId>{young_first ? first : second}));
    EXPECT_GE(s.f.metrics.preemptions.Value(), 1);
  }
}

TEST(PreemptionTest, TwoThatEachNeedTheLastBlockDoNotFreezeEachOther) {
  Small s(9);
  // Both fill their four blocks in the same step, and one is left.
  const SequenceId a = s.Add(FixtureState(FixturePrompt(48, 1), 90, 3), 7);
  const SequenceId b = s.Add(FixtureState(FixturePrompt(48, 2), 90, 4), 7);
  s.Finish();
  EXPECT_EQ(s.again, std::set<SequenceId>{b}) << "of one age the one that came later, not " << a;
}

TEST(PreemptionTest, TheOldestOfManyNeverComputesAnythingTwice) {
  Small s(14);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(s.Add(FixtureState(FixturePrompt(17, i), 150, i), 100 - i));
  }
  s.Finish();
  EXPECT_FALSE(s.again.contains(ids[0]));
  EXPECT_EQ(s.computed[ids[0]], 17u + 149u);
  EXPECT_TRUE(s.again.contains(ids[3]));
}

TEST(PreemptionTest, WhoIsPreemptedComputesOnlyWhatTheCacheLost) {
  const auto recomputed = [](bool named) {
    Small s(12);
    const auto with = [named](DecoderState state) { return named ? Named(state) : state; };
    s.Add(with(FixtureState(FixturePrompt(40, 1), 70, 3)), 20);
    s.Add(with(FixtureState(FixturePrompt(40, 2), 60, 4)), 10);
    s.Finish();
    EXPECT_GE(s.f.metrics.preemptions.Value(), 1);
    return s.f.metrics.recomputed_tokens.Value();
  };
  const double uncached = recomputed(false);
  EXPECT_GT(uncached, 0);
  EXPECT_LT(recomputed(true), uncached);
}

TEST(PreemptionTest, ChoicesShareThePromptAgainAndKeepTheirTokens) {
  for (const bool named : {false, true}) {
    for (const uint32_t prompt : {1u, 15u, 16u, 17u, 32u, 40u}) {
      SCOPED_TRACE(prompt);
      Small s(24);
      DecoderState young = FixtureState(FixturePrompt(prompt, 1), 100, 7, 3);
      // One of them ends early.
      young.stop.stop_token_ids = {s.f.Expected(young, 1)[12]};
      const SequenceId old = s.Add(FixtureState(FixturePrompt(200, 2), 120, 3), 20);
      while (s.computed[old] < 192) ASSERT_TRUE(s.RunOne());  // it would be overtaken
      const SequenceId id = s.Add(named ? Named(young) : young, 10);
      s.Finish();
      EXPECT_TRUE(s.again.contains(id)) << "it was not preempted";
      EXPECT_EQ(s.again.size(), 1u);
    }
  }
}

TEST(PreemptionTest, LogProbabilitiesComeOnceAndAreTheSame) {
  Small s(12);
  DecoderState young = FixtureState(FixturePrompt(40, 1), 60, 7);
  young.logprobs = {.output = 2, .prompt = 1};
  s.Add(FixtureState(FixturePrompt(40, 2), 120, 3), 20);
  const SequenceId id = s.Add(young, 10);
  s.Finish();
  EXPECT_TRUE(s.again.contains(id));
  EXPECT_EQ(s.f.seen[id].prompt_logprobs.size(), 39u);
  for (const TokenEvent& event : s.f.seen[id].tokens) {
    ASSERT_TRUE(event.logprobs.has_value());
    EXPECT_EQ(*event.logprobs, FakeLogprobs(event.token, 2));
  }
}

TEST(PreemptionTest, APromptThatGaveWayIsScoredOnceThroughout) {
  for (const bool named : {false, true}) {
    Small s(18, nullptr, 6);
    s.Add(FixtureState(FixturePrompt(20, 2), 150, 3), 20);
    DecoderState young = FixtureState(FixturePrompt(230, 1), 5, 7);
    young.logprobs.prompt = 1;
    const SequenceId id = s.Add(named ? Named(young) : young, 10);
    s.RunUntilPreempted();
    EXPECT_GT(s.f.seen[id].prompt_logprobs.size(), 0u);
    EXPECT_LT(s.f.seen[id].prompt_logprobs.size(), 229u);
    s.Finish();
    const std::vector<TokenLogprobs>& scored = s.f.seen[id].prompt_logprobs;
    ASSERT_EQ(scored.size(), 229u);
    for (size_t i = 0; i < scored.size(); ++i) {
      EXPECT_EQ(scored[i], FakeLogprobs(young.prompt[i + 1], 1)) << i;
    }
  }
}

TEST(PreemptionTest, AStopStringMayBeginBeforeItAndEndAfterIt) {
  // Found by trying every place for the end of the string: the tokens around the moment at which
  // the sequence gives way.
  const DecoderState old = FixtureState(FixturePrompt(40, 2), 120, 3);
  DecoderState young = FixtureState(FixturePrompt(40, 1), 60, 7);
  young.stop.ignore_eos = true;
  size_t before = 0;
  {
    Small s(12);
    s.Add(old, 20);
    const SequenceId id = s.Add(young, 10);
    s.RunUntilPreempted();
    before = s.f.seen[id].tokens.size();
  }
  Small s(12);
  const std::vector<TokenId> tokens = s.f.Expected(young);
  ASSERT_GT(before, 2u);
  std::string stop;
  for (size_t i = before - 2; i < before + 2; ++i) {
    stop += FixtureVocab().Bytes(tokens[i]);
  }
  young.stop.stop_strings = {stop};
  s.Add(old, 20);
  const SequenceId id = s.Add(young, 10);
  s.Finish();
  EXPECT_EQ(s.f.seen[id].tokens.size(), before + 2);
  EXPECT_EQ(s.f.seen[id].tokens.back().finish_reason, FinishReason::kStop);
}

TEST(PreemptionTest, RemovedWhileItHoldsNothingItIsGoneAndOthersMayHaveRoom) {
  Small s(12);
  s.Add(FixtureState(FixturePrompt(40, 1), 110, 3), 20);
  const SequenceId young = s.Add(FixtureState(FixturePrompt(40, 2), 80, 4), 10);
  s.RunUntilPreempted();
  EXPECT_FALSE(s.f.engine.OnBlocksFreed().has_value()) << "nobody else may be granted any";
  const uint32_t rooms = s.f.rooms;
  s.f.engine.Remove(young);
  s.states.erase(young);
  while (s.f.rooms == rooms) ASSERT_TRUE(s.RunOne());
  EXPECT_TRUE(s.f.engine.OnBlocksFreed().has_value());
  const size_t seen = s.f.seen[young].tokens.size();
  s.Finish();
  EXPECT_EQ(s.f.seen[young].tokens.size(), seen);
}

TEST(PreemptionTest, ItsDeadlineMeetsItWhileItHoldsNothing) {
  Small s(12);
  s.Add(FixtureState(FixturePrompt(40, 1), 110, 3), 20);
  DecoderState state = FixtureState(FixturePrompt(40, 2), 80, 4);
  state.stop.ignore_eos = true;
  const absl::StatusOr<SequenceId> young =
      s.f.Add(state, SequenceMode::kGenerate, s.f.executor.Now() + milliseconds(20));
  ASSERT_TRUE(young.ok());
  s.RunUntilPreempted();
  EXPECT_FALSE(s.f.seen[*young].failed.has_value());
  s.Finish();
  ASSERT_TRUE(s.f.seen[*young].failed.has_value());
  EXPECT_EQ(s.f.seen[*young].failed->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(s.f.engine.OnBlocksFreed().has_value());
}

TEST(PreemptionTest, ShippedPromptsKeepTheirBlocksAndTheOneThatNeedsThemWaits) {
  Small s(8);
  const SequenceId shipped =
      s.f.MustAdd(FixtureState(FixturePrompt(60, 9), 1, 1), SequenceMode::kPrefillOnly);
  const SequenceId old = s.Add(FixtureState(FixturePrompt(40, 1), 80, 3), 20);
  while (s.RunOne()) continue;
  EXPECT_FALSE(s.f.seen[old].finished()) << "four blocks do not do";
  EXPECT_FALSE(s.f.engine.OnBlocksFreed().has_value());
  EXPECT_EQ(s.f.engine.Load().preempted, 0u);
  s.f.engine.Remove(shipped);
  s.Finish();
  EXPECT_TRUE(s.again.empty());
}

// Answers as it is told and remembers who asked.
class FakeHolder final : public RoomHolder {
 public:
  GaveUp GiveUpYoungest(Time than) override {
    asked.push_back(than);
    if (answers.empty()) return GaveUp::kNobody;
    const GaveUp answer = answers.front();
    answers.pop_front();
    return answer;
  }
  kv::BlockLease lease;
  std::deque<GaveUp> answers;
  std::vector<Time> asked;
};

TEST(PreemptionTest, AYoungerReservationGivesWayBeforeASequence) {
  FakeHolder holder;
  holder.answers = {GaveUp::kComing};
  Small s(8, &holder);
  holder.lease = *s.f.pool.Take({4, 4});
  s.Add(FixtureState(FixturePrompt(40, 1), 80, 3), 20);
  while (s.RunOne()) continue;
  holder.lease.Reset();
  s.Finish();
  ASSERT_EQ(holder.asked.size(), 1u);
  EXPECT_EQ(holder.asked[0], Time{} - milliseconds(20)) << "those as young as the youngest";
  EXPECT_EQ(s.f.metrics.preemptions.Value(), 0);
}

TEST(PreemptionTest, BlocksOnTheirWayBackAreWaitedForAndNobodyElseIsHeldUp) {
  FakeHolder holder;
  holder.answers = std::deque<GaveUp>(1000, GaveUp::kComing);
  Small s(12, &holder);
  holder.lease = *s.f.pool.Take({5, 5});
  const SequenceId old = s.Add(FixtureState(FixturePrompt(40, 1), 80, 3), 20);
  const SequenceId young = s.Add(FixtureState(FixturePrompt(20, 2), 20, 4), 10);
  while (s.RunOne()) continue;
  EXPECT_TRUE(s.f.seen[young].finished()) << "it had all it needed";
  EXPECT_FALSE(s.f.seen[old].finished());
  EXPECT_EQ(s.f.metrics.preemptions.Value(), 0);
  holder.lease.Reset();
  s.Finish();
  EXPECT_TRUE(s.again.empty());
}

TEST(PreemptionTest, WithoutAYoungReservationTheYoungestSequenceGivesWay) {
  FakeHolder holder;  // all of its are older
  Small s(12, &holder);
  s.Add(FixtureState(FixturePrompt(40, 1), 110, 3), 20);
  s.Add(FixtureState(FixturePrompt(40, 2), 80, 4), 10);
  s.Finish();
  EXPECT_GE(s.f.metrics.preemptions.Value(), 1);
  ASSERT_FALSE(holder.asked.empty());
  EXPECT_EQ(holder.asked[0], Time{} - milliseconds(10));
}

TEST(PreemptionTest, WhoJoinsLeavesABlockForEveryTwoChoicesThatGrow) {
  Small s(64);
  EXPECT_EQ(s.f.engine.OnBlocksFreed(), 0u);
  s.Add(FixtureState(FixturePrompt(40, 1), 80, 3, 3), 20);
  s.Add(FixtureState(FixturePrompt(40, 2), 17, 3, 4), 20);  // has all it needs
  EXPECT_EQ(s.f.engine.OnBlocksFreed(), 2u);
  s.Finish();
  EXPECT_EQ(s.f.engine.OnBlocksFreed(), 0u);
}

TEST(PreemptionTest, MetricsAndLoadCountIt) {
  Small s(12);
  s.Add(FixtureState(FixturePrompt(40, 1), 110, 3), 20);
  s.Add(FixtureState(FixturePrompt(40, 2), 80, 4), 10);
  s.RunUntilPreempted();
  EXPECT_EQ(s.f.metrics.requests_preempted.Value(), 1);
  EXPECT_EQ(s.f.metrics.requests_running.Value(), 1);
  const EngineLoad load = s.f.engine.Load();
  EXPECT_EQ(load.waiting, 1u);
  EXPECT_GT(load.queued_prefill_tokens, 40u) << "prompt and answer";
  s.Finish();
  EXPECT_EQ(s.f.metrics.requests_preempted.Value(), 0);
}

}  // namespace
}  // namespace baton::engine
