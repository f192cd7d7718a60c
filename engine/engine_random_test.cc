// Tokens do not depend on who else runs, how prompts are cut, or when others come and go.
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "engine/engine.h"
#include "engine/engine_fixture.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

struct Wanted {
  SequenceId id = 0;
  DecoderState state;
  bool removed = false;
};

DecoderState RandomState(Random& random) {
  DecoderState state = FixtureState(
      FixturePrompt(1 + static_cast<uint32_t>(random.Below(97)), random.Next64() % 1000),
      1 + static_cast<uint32_t>(random.Below(40)), random.Next64());
  state.age = std::chrono::milliseconds(random.Below(1000));
  state.stop.ignore_eos = random.Below(2) == 0;
  if (random.Below(3) == 0) state.stop.stop_token_ids = {static_cast<TokenId>(random.Below(256))};
  return state;
}

void ExpectRight(EngineFixture& f, const Wanted& wanted) {
  const EngineFixture::Seen& seen = f.seen[wanted.id];
  const std::vector<TokenId> expected = f.Expected(wanted.state);
  const std::vector<TokenId> ids = seen.ids();
  ASSERT_FALSE(seen.failed.has_value());
  ASSERT_LE(ids.size(), expected.size());
  if (!wanted.removed) {
    ASSERT_EQ(ids.size(), expected.size());
    EXPECT_TRUE(seen.finished());
  }
  EXPECT_EQ(ids, std::vector<TokenId>(expected.begin(),
                                      expected.begin() + static_cast<ptrdiff_t>(ids.size())));
}

// Adds what fits, removes some, checks the pool after every event.
void RunSeed(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  SeededRandom random(seed);
  static constexpr uint32_t kBudgets[] = {1, 7, 16, 64, 512};
  EngineFixture f({.engine = {.step_tokens = kBudgets[random.Below(5)],
                              .max_running = 1 + static_cast<uint32_t>(random.Below(16)),
                              .context_length = 128},
                   .blocks = 12 + static_cast<uint32_t>(random.Below(60))});
  std::vector<Wanted> all;
  const size_t count = 5 + random.Below(20);
  const auto arrive = [&] {
    const DecoderState state = RandomState(random);
    const absl::StatusOr<SequenceId> id = f.Add(state);
    if (id.ok()) all.push_back({*id, state});
  };
  const auto leave = [&] {
    if (all.empty()) return;
    Wanted& victim = all[random.Below(all.size())];
    if (f.seen[victim.id].finished()) return;
    victim.removed = true;
    f.engine.Remove(victim.id);
  };
  for (size_t i = 0; i < count; ++i) {
    f.world.After(std::chrono::microseconds(random.Below(5000)), [&] { arrive(); });
    if (random.Below(3) == 0) {
      f.world.After(std::chrono::microseconds(random.Below(9000)), [&] { leave(); });
    }
  }
  while (f.world.RunOne()) ASSERT_TRUE(f.pool.CheckIntegrity().ok()) << f.pool.CheckIntegrity();
  for (const Wanted& wanted : all) ExpectRight(f, wanted);
  EXPECT_TRUE(f.engine.idle());
  EXPECT_EQ(f.pool.free_blocks(), f.pool.capacity());
}

TEST(EngineRandomTest, TokensAreRightInAnyCompany) {
  for (uint64_t seed = 1; seed <= 100; ++seed) RunSeed(seed);
}

TEST(EngineRandomTest, TokensAreTheSameAloneAndInAnyChunking) {
  for (const uint32_t prompt : {1u, 15u, 16u, 17u, 31u, 32u, 33u, 95u, 96u, 97u}) {
    for (const uint32_t budget : {1u, 7u, 16u, 64u, 512u}) {
      EngineFixture f({.engine = {.step_tokens = budget, .context_length = 512}});
      const DecoderState state = FixtureState(FixturePrompt(prompt, prompt), 18, 3);
      const SequenceId id = f.MustAdd(state);
      f.Run();
      EXPECT_EQ(f.seen[id].ids(), f.Expected(state)) << prompt << " in chunks of " << budget;
    }
  }
}

// The net itself: content that is not the sequence's own changes tokens.
TEST(FakeModelTest, AForeignByteInAnyLayerShowsAsAWrongToken) {
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (uint32_t arena = 0; arena < 2; ++arena) {
      EngineFixture f({});
      DecoderState state = FixtureState(FixturePrompt(20, 1), 30, 3);
      state.stop.ignore_eos = true;
      const SequenceId id = f.MustAdd(state);
      f.on_token = [&](const TokenEvent& event) {
        if (event.position != 25) return;
        f.arena->Piece(layer, arena, 0)[3] ^= std::byte{1};  // the first block taken
      };
      f.Run();
      const std::vector<TokenId> expected = f.Expected(state);
      const std::vector<TokenId> ids = f.seen[id].ids();
      ASSERT_EQ(ids.size(), expected.size());
      EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + 6, expected.begin()));
      EXPECT_NE(ids, expected) << "layer " << layer << ", arena " << arena;
    }
  }
}

}  // namespace
}  // namespace baton::engine
