// Decodes that leave the cores to prompts which others compute on them: when, for how long, and
// what never waits for it.
#include <chrono>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_fixture.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using std::chrono::microseconds;

struct Rests {
  // A stream that runs from now on.
  SequenceId Stream(uint64_t seed, std::optional<Time> deadline = std::nullopt) {
    states[seed] = FixtureState(FixturePrompt(16, seed), 200, seed);
    states[seed].stop.ignore_eos = true;
    return *f.Add(states[seed], SequenceMode::kGenerate, deadline);
  }
  // What a commit brings: its prompt's blocks are filled and its first token is there.
  SequenceId Join(uint64_t seed) {
    DecoderState state = FixtureState(FixturePrompt(16, seed), 200, seed);
    state.choices[0].tokens = {1};
    kv::BlockLease lease = *f.TakeBlocks(state, SequenceMode::kGenerate);
    return *f.engine.Add({.state = state, .lease = std::move(lease), .filled = 16, .mode = {}});
  }
  // Between the starts of the next two steps.
  Duration Gap() {
    NextStep();
    const Time first = steps.back();
    NextStep();
    return steps.back() - first;
  }
  void NextStep() {
    const size_t before = steps.size();
    ASSERT_TRUE(f.world.RunUntilTrue([&] { return steps.size() > before; },
                                     f.world.now() + std::chrono::seconds(1)));
  }
  // To a moment between two steps at which the engine rests.
  void RunIntoARest() {
    const uint32_t before = f.step_ends;
    ASSERT_TRUE(f.world.RunUntilTrue([&] { return f.step_ends > before; },
                                     f.world.now() + std::chrono::seconds(1)));
    f.world.RunFor(microseconds(10));
  }
  double rested() { return f.metrics.rest_seconds.Value(); }

  uint32_t coming = 0;
  std::vector<Time> steps;
  std::map<uint64_t, DecoderState> states;
  EngineFixture f{{.blocks = 256,
                   .model = {.on_step = [this](const Step&) { steps.push_back(f.executor.Now()); }},
                   .coming = [this] { return coming; }}};
};

TEST(RestsTest, AFewDecodesLeaveTheirCoresToThoseThatWillJoinThem) {
  Rests r;
  const SequenceId stream = r.Stream(1);
  for (int i = 0; i < 20; ++i) r.NextStep();
  const Duration quiet = r.Gap();
  EXPECT_EQ(r.rested(), 0);
  r.coming = 4;
  const Duration resting = r.Gap();
  EXPECT_GT(resting, StepPlanner::kStretch * quiet);
  // No longer than all five would take: a row of them costs less than a step of one.
  EXPECT_LT(resting, 5 * StepPlanner::kStretch * quiet);
  EXPECT_GE(r.Gap(), resting);  // the keys are more
  r.coming = 0;
  EXPECT_EQ(r.Gap(), quiet);
  EXPECT_GT(r.rested(), 3 * ToSeconds(resting - quiet) - 1e-6);
  r.f.Run();
  EXPECT_EQ(r.f.seen[stream].ids(), r.f.Expected(r.states[1]));
}

TEST(RestsTest, TheMoreAreComingTheLonger) {
  Rests r;
  r.Stream(1);
  for (int i = 0; i < 20; ++i) r.NextStep();
  r.coming = 1;
  const Duration one = r.Gap();
  r.coming = 8;
  EXPECT_GT(r.Gap(), one);
}

TEST(RestsTest, ManyDecodesDoNotWaitForAFew) {
  Rests r;
  for (uint64_t seed = 1; seed <= 3; ++seed) r.Stream(seed);
  for (int i = 0; i < 20; ++i) r.NextStep();
  const Duration quiet = r.Gap();
  r.coming = 1;
  EXPECT_EQ(r.Gap(), quiet);
  r.coming = 2;
  EXPECT_GT(r.Gap(), quiet);
}

TEST(RestsTest, NobodyWaitsForThoseThatDoNotFitTheBatch) {
  Rests r;
  for (uint64_t seed = 1; seed <= 64; ++seed) r.Stream(seed);  // max_running
  for (int i = 0; i < 20; ++i) r.NextStep();
  const Duration quiet = r.Gap();
  r.coming = 64;
  EXPECT_EQ(r.Gap(), quiet);
}

TEST(RestsTest, WhoJoinsEndsTheRestAtOnce) {
  Rests r;
  r.Stream(1);
  for (int i = 0; i < 20; ++i) r.NextStep();
  r.coming = 4;
  r.RunIntoARest();
  const Time now = r.f.executor.Now();
  ASSERT_LT(r.steps.back(), now);
  r.Join(2);
  r.NextStep();
  EXPECT_EQ(r.steps.back(), now);
}

TEST(RestsTest, APromptOfOnesOwnDoesNotWait) {
  Rests r;
  r.Stream(1);
  for (int i = 0; i < 20; ++i) r.NextStep();
  r.coming = 4;
  r.RunIntoARest();
  const Time now = r.f.executor.Now();
  const double rested = r.rested();
  (void)r.f.MustAdd(FixtureState(FixturePrompt(300, 2), 1, 2));
  r.NextStep();
  EXPECT_EQ(r.steps.back(), now);
  const double ended = r.rested();
  EXPECT_GT(ended, rested);
  for (int i = 0; i < 5; ++i) r.NextStep();  // of the same prompt
  EXPECT_EQ(r.rested(), ended);
}

TEST(RestsTest, CancelsAndDeadlinesDoNotWaitForItsEnd) {
  Rests r;
  const SequenceId cancelled = r.Stream(1);
  for (int i = 0; i < 20; ++i) r.NextStep();
  r.coming = 4;
  r.RunIntoARest();
  r.f.engine.Remove(cancelled);
  EXPECT_TRUE(r.f.engine.idle());
  EXPECT_EQ(r.f.pool.free_blocks(), r.f.pool.capacity());
  r.f.Run();

  r.coming = 0;
  const Time deadline = r.f.executor.Now() + std::chrono::milliseconds(20);
  const SequenceId expired = r.Stream(2, deadline);
  for (int i = 0; i < 20; ++i) r.NextStep();
  r.coming = 60;
  r.f.world.RunFor(deadline - r.f.executor.Now());
  ASSERT_TRUE(r.f.seen[expired].failed.has_value());
  EXPECT_EQ(r.f.pool.free_blocks(), r.f.pool.capacity());
}

}  // namespace
}  // namespace baton::engine
