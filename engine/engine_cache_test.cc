// An engine whose sequences find each other's blocks gives the tokens of one without a cache.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/random.h"
#include "engine/engine_fixture.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

constexpr uint32_t kSize = 16;

DecoderState Cached(std::vector<TokenId> prompt, uint32_t max_tokens, uint64_t seed = 1,
                    uint32_t n = 1) {
  DecoderState state = FixtureState(std::move(prompt), max_tokens, seed, n);
  state.stop.ignore_eos = true;
  state.cache_namespace = "space";
  return state;
}

// Runs it and compares every choice; returns how many tokens of the prompt were computed.
double RunAndCompare(EngineFixture& f, const DecoderState& state,
                     SequenceMode mode = SequenceMode::kGenerate) {
  const double before = f.metrics.prompt_tokens.Value();
  const SequenceId id = f.MustAdd(state, mode);
  f.Run();
  for (uint32_t choice = 0; choice < state.choices.size(); ++choice) {
    std::vector<TokenId> expected = f.Expected(state, choice);
    if (mode == SequenceMode::kPrefillOnly) expected.resize(1);
    EXPECT_EQ(f.seen[id].ids(choice), expected);
  }
  f.engine.Remove(id);
  EXPECT_TRUE(f.cache.CheckIntegrity().ok()) << f.cache.CheckIntegrity();
  EXPECT_TRUE(f.pool.CheckIntegrity().ok()) << f.pool.CheckIntegrity();
  EXPECT_EQ(f.pool.free_blocks(), f.pool.capacity());
  return f.metrics.prompt_tokens.Value() - before;
}

TEST(EngineCacheTest, ComputesWhatIsNotThereAndAtLeastTheLastToken) {
  for (const SequenceMode mode : {SequenceMode::kGenerate, SequenceMode::kPrefillOnly}) {
    for (const uint32_t length : {1u, 15u, 16u, 17u, 32u, 33u, 47u, 48u, 49u, 100u}) {
      SCOPED_TRACE(length);
      EngineFixture f({});
      const DecoderState state = Cached(FixturePrompt(length, 1), 1);
      EXPECT_EQ(RunAndCompare(f, state, mode), length);
      EXPECT_EQ(RunAndCompare(f, state, mode), length - (length - 1) / kSize * kSize);
    }
  }
}

TEST(EngineCacheTest, ASecondTurnFindsTheFirstOnesAnswer) {
  EngineFixture f({});
  DecoderState turn = Cached(FixturePrompt(40, 1), 30);
  RunAndCompare(f, turn);
  const std::vector<TokenId> answer = f.Expected(turn);
  turn.prompt.insert(turn.prompt.end(), answer.begin(), answer.end());
  // 69 of these 70 tokens went through the model: four full blocks.
  const std::vector<TokenId> question = FixturePrompt(9, 2);
  turn.prompt.insert(turn.prompt.end(), question.begin(), question.end());
  EXPECT_EQ(RunAndCompare(f, turn), 79 - 64);
}

TEST(EngineCacheTest, ChoicesStoreTheirOwnAnswers) {
  EngineFixture f({.blocks = 128});
  const DecoderState first = Cached(FixturePrompt(40, 1), 40, 7, 3);
  EXPECT_EQ(RunAndCompare(f, first), 40);
  for (uint32_t choice = 0; choice < 3; ++choice) {
    DecoderState turn = first;
    const std::vector<TokenId> answer = f.Expected(first, choice);
    turn.prompt.insert(turn.prompt.end(), answer.begin(), answer.end());
    EXPECT_EQ(RunAndCompare(f, turn), 80 - 64) << choice;
  }
}

TEST(EngineCacheTest, PromptLogprobsAreComputedFromNoCache) {
  EngineFixture f({});
  DecoderState state = Cached(FixturePrompt(40, 1), 3);
  state.logprobs.prompt = 1;
  EXPECT_EQ(RunAndCompare(f, state), 40);
  EXPECT_EQ(RunAndCompare(f, state), 40);
  state.logprobs.prompt.reset();
  EXPECT_EQ(RunAndCompare(f, state), 8);
}

TEST(EngineCacheTest, WithoutANamespaceNothingIsFoundOrStored) {
  EngineFixture f({});
  const DecoderState cached = Cached(FixturePrompt(40, 1), 3);
  DecoderState off = cached;
  off.cache_namespace.clear();
  EXPECT_EQ(RunAndCompare(f, off), 40);
  EXPECT_EQ(f.cache.size(), 0u);
  EXPECT_EQ(RunAndCompare(f, cached), 40);
  EXPECT_EQ(RunAndCompare(f, off), 40);
}

TEST(EngineCacheTest, SequencesThatRunTogetherShareWhatTheyBothComputed) {
  EngineFixture f({.blocks = 32});
  const DecoderState state = Cached(FixturePrompt(64, 1), 40);
  const SequenceId a = f.MustAdd(state);
  const SequenceId b = f.MustAdd(state);
  uint32_t held = 0;
  f.on_token = [&](const TokenEvent& event) {
    if (event.position == 100) held = std::max(held, 32 - f.pool.free_blocks()[0]);
  };
  f.Run();
  EXPECT_EQ(f.seen[a].ids(), f.Expected(state));
  EXPECT_EQ(f.seen[b].ids(), f.Expected(state));
  EXPECT_LE(held, 9u);  // 14 for two that share nothing
}

TEST(EngineCacheTest, BlocksOfAStepThatFailedAreNotStored) {
  EngineFixture f({.model = {.nan = [](const StepItem& item) { return item.tokens.size() > 1; }}});
  (void)f.MustAdd(Cached(FixturePrompt(40, 1), 3));
  f.Run();
  EXPECT_EQ(f.cache.size(), 0u);
}

TEST(EngineCacheTest, ACancelledPromptLeavesWhatItFinished) {
  EngineFixture f({.engine = {.step_tokens = 20, .context_length = 512}});
  const DecoderState state = Cached(FixturePrompt(100, 1), 3);
  const SequenceId id = f.MustAdd(state);
  while (f.cache.size() < 2) ASSERT_TRUE(f.world.RunOne());
  f.engine.Remove(id);
  f.Run();
  EXPECT_LE(RunAndCompare(f, state), 100 - 32);
}

TEST(EngineCacheTest, RandomConversationsInASmallPoolKeepTheirTokens) {
  const uint64_t seed = 6;
  SCOPED_TRACE(seed);
  SeededRandom random(seed);
  EngineFixture f({.engine = {.step_tokens = 24, .context_length = 512}, .blocks = 40});
  std::vector<DecoderState> talks(4);
  std::map<SequenceId, DecoderState> added;
  for (int i = 0; i < 400; ++i) {
    DecoderState& talk = talks[random.Below(talks.size())];
    if (talk.prompt.size() > 200 || talk.prompt.empty()) {
      talk = Cached(FixturePrompt(20, random.Below(3)), 1);
      talk.cache_namespace = random.Below(2) == 0 ? "one" : "two";
    }
    talk.stop.max_tokens = 1 + static_cast<uint32_t>(random.Below(40));
    talk.choices.resize(1 + random.Below(2));
    const absl::StatusOr<SequenceId> id = f.Add(talk);
    if (id.ok()) {
      added[*id] = talk;
      const std::vector<TokenId> answer = f.Expected(talk);
      talk.prompt.insert(talk.prompt.end(), answer.begin(), answer.end());
    }
    const uint64_t events = random.Below(200);
    for (uint64_t e = 0; e < events && f.world.RunOne(); ++e) {
      ASSERT_TRUE(f.cache.CheckIntegrity().ok()) << f.cache.CheckIntegrity();
    }
    if (random.Below(20) == 0 && id.ok()) {
      f.engine.Remove(*id);
      added.erase(*id);
    }
  }
  f.Run();
  for (const auto& [id, state] : added) {
    for (uint32_t choice = 0; choice < state.choices.size(); ++choice) {
      ASSERT_EQ(f.seen[id].ids(choice), f.Expected(state, choice)) << id;
    }
  }
  EXPECT_GT(added.size(), 100u);
  EXPECT_GT(f.cache_metrics.hits.Value(), 50);
  EXPECT_GT(f.cache_metrics.evictions.Value(), 50);
  EXPECT_TRUE(f.pool.CheckIntegrity().ok()) << f.pool.CheckIntegrity();
  EXPECT_EQ(f.pool.free_blocks(), f.pool.capacity());
}

}  // namespace
}  // namespace baton::engine
