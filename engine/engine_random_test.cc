// Tokens do not depend on who else runs, how prompts are cut, or when others come and go.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "engine/engine.h"
#include "engine/engine_fixture.h"
#include "engine/room_queue.h"
#include "gtest/gtest.h"
#include "kv/block_demand.h"
#include "kv/prefix_cache.h"

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

// What a choice may have, several of them, and prompts that begin alike.
DecoderState RichState(Random& random) {
  DecoderState state = RandomState(random);
  state.choices.resize(1 + random.Below(4));
  if (random.Below(3) > 0) state.cache_namespace = "space";
  if (random.Below(2) == 0) {
    const std::vector<TokenId> stem = FixturePrompt(64, 1);
    const size_t shared = std::min(stem.size(), state.prompt.size());
    std::copy_n(stem.begin(), shared, state.prompt.begin());
  }
  if (random.Below(3) == 0) state.logprobs.output = static_cast<uint32_t>(random.Below(3));
  if (random.Below(4) == 0) state.logprobs.prompt = static_cast<uint32_t>(random.Below(3));
  state.sampling.presence_penalty = static_cast<float>(random.Below(3)) / 4;
  if (random.Below(3) == 0) {
    state.stop.stop_strings = {std::string(1, static_cast<char>(random.Below(256)))};
  }
  return state;
}

// By choice, since events of several may come in any order; and whichever is the last of all.
std::map<uint32_t, std::vector<TokenEvent>> ByChoice(const std::vector<TokenEvent>& events) {
  std::map<uint32_t, std::vector<TokenEvent>> out;
  for (TokenEvent event : events) {
    event.sequence = 0;
    event.last = false;
    out[event.choice].push_back(std::move(event));
  }
  return out;
}

// Requests that wait for their first blocks by age, as at a worker, in a pool that any one of them
// could fill.
class Crowd {
 public:
  Crowd(const EngineOptions& engine, uint32_t blocks)
      : f({.engine = engine, .blocks = blocks}), queue_(f.pool, &f.cache) {
    f.on_spare = [this](uint32_t spare) { queue_.Pump(spare); };
  }

  void Arrive(size_t index, const DecoderState& arriving) {
    const DecoderState& state = states_[index] = arriving;
    const uint32_t blocks =
        *kv::BlocksNeeded(state.prompt.size(), static_cast<uint32_t>(state.choices.size()),
                          kv::TokensAtFirst(0, state.stop.max_tokens, kBlock), kBlock);
    const size_t most = state.logprobs.prompt.has_value() ? 0 : state.prompt.size() - 1;
    const Time admitted = f.executor.Now() - state.age;
    claims_[index] = queue_.Add(
        {.admitted_at = admitted,
         .blocks = {blocks, blocks},
         .granted = [this, index,
                     admitted](kv::CachedLease taken) { Start(index, admitted, std::move(taken)); },
         .prefix = f.cache.Query(state.cache_namespace, state.prompt, most)});
    const std::optional<uint32_t> spare = f.engine.OnBlocksFreed();
    if (spare.has_value()) queue_.Pump(*spare);
  }
  void Leave(size_t index) {
    if (claims_.contains(index)) queue_.Cancel(claims_[index]);
    if (ids.contains(index)) f.engine.Remove(ids[index]);
    left.insert(index);
  }

  static constexpr uint32_t kBlock = 16;
  EngineFixture f;
  std::map<size_t, SequenceId> ids;
  std::set<size_t> left;

 private:
  void Start(size_t index, Time admitted, kv::CachedLease taken) {
    DecoderState state = states_[index];
    state.age = f.executor.Now() - admitted;
    const auto id = f.engine.Add({.state = state,
                                  .lease = std::move(taken.lease),
                                  .filled = taken.chain.blocks * kBlock,
                                  .chain = taken.chain});
    ASSERT_TRUE(id.ok()) << id.status();
    ids[index] = *id;
  }

  std::map<size_t, DecoderState> states_;
  std::map<size_t, RoomQueue::ClaimId> claims_;
  RoomQueue queue_;
};

// Returns how often a sequence gave way.
double RunTinySeed(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  SeededRandom random(seed);
  static constexpr uint32_t kBudgets[] = {1, 7, 16, 64, 512};
  const EngineOptions options{.step_tokens = kBudgets[random.Below(5)],
                              .max_running = 1 + static_cast<uint32_t>(random.Below(16)),
                              .context_length = 160};
  Crowd tiny(options, 21);  // four choices of 95 + 40 tokens need all of it
  Crowd huge(options, 4000);
  const size_t count = 10 + random.Below(20);
  for (size_t i = 0; i < count; ++i) {
    const DecoderState state = RichState(random);
    const Duration when = std::chrono::microseconds(random.Below(20000));
    tiny.f.world.After(when, [&tiny, i, state] { tiny.Arrive(i, state); });
    huge.f.world.After(when, [&huge, i, state] { huge.Arrive(i, state); });
    if (random.Below(6) > 0) continue;
    tiny.f.world.After(when + std::chrono::microseconds(random.Below(20000)),
                       [&tiny, i] { tiny.Leave(i); });
  }
  huge.f.Run();
  while (tiny.f.world.RunOne()) {
    EXPECT_TRUE(tiny.f.pool.CheckIntegrity().ok()) << tiny.f.pool.CheckIntegrity();
    EXPECT_TRUE(tiny.f.cache.CheckIntegrity().ok()) << tiny.f.cache.CheckIntegrity();
  }
  EXPECT_TRUE(tiny.f.engine.idle());
  EXPECT_EQ(tiny.f.pool.free_blocks(), tiny.f.pool.capacity());
  for (size_t i = 0; i < count; ++i) {
    if (tiny.left.contains(i)) continue;
    const EngineFixture::Seen& there = huge.f.seen[huge.ids.at(i)];
    const EngineFixture::Seen& here = tiny.f.seen[tiny.ids.at(i)];
    EXPECT_TRUE(here.finished() && there.finished()) << i;
    EXPECT_TRUE(ByChoice(here.tokens) == ByChoice(there.tokens)) << i;
    EXPECT_EQ(here.prompt_logprobs, there.prompt_logprobs) << i;
  }
  EXPECT_EQ(huge.f.metrics.preemptions.Value(), 0);
  return tiny.f.metrics.preemptions.Value();
}

TEST(EngineRandomTest, ATinyPoolGivesTheEventsOfAHugeOne) {
  double preemptions = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) preemptions += RunTinySeed(seed);
  EXPECT_GT(preemptions, 60);
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
