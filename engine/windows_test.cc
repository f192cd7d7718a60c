// A KV group with a sliding window: blocks that no later token can see are given back, so that a
// sequence holds a bounded number of them, and nobody's tokens change.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "engine/engine.h"
#include "engine/engine_fixture.h"
#include "gtest/gtest.h"
#include "kv/block_demand.h"
#include "kv/sliding_windows.h"

namespace baton::engine {
namespace {

constexpr kv::GroupId kSlides = 1;  // group 0 sees all
constexpr uint32_t kSize = 16;
constexpr uint32_t kWindows[] = {1, kSize - 1, kSize, kSize + 1, 3 * kSize};

DecoderState Ignoring(DecoderState state) {
  state.stop.ignore_eos = true;
  return state;
}

// An engine whose pool is checked after every event.
struct Windowed {
  Windowed(uint32_t window, const EngineOptions& engine, uint32_t blocks = 64,
           std::optional<uint32_t> slid_blocks = std::nullopt)
      : f({.engine = engine,
           .blocks = blocks,
           .model = {.on_step = [this](const Step& step) { Note(step); }},
           .window = window,
           .slid_blocks = slid_blocks}) {}

  void Note(const Step& step) {
    for (const StepItem& item : step.items) {
      const uint32_t choice = item.samples.empty() ? 0 : item.samples.front().choice;
      uint32_t& end = ends[{item.sequence, choice}];
      if (item.start_position < end && end > f.options.window) again.insert(item.sequence);
      end = item.start_position + static_cast<uint32_t>(item.tokens.size());
    }
  }
  bool RunOne() {
    const bool ran = f.world.RunOne();
    EXPECT_TRUE(f.pool.CheckIntegrity().ok()) << f.pool.CheckIntegrity();
    most = std::max(most, Held());
    return ran;
  }
  void Run() {
    while (RunOne()) continue;
  }
  uint32_t Held() const { return f.pool.capacity()[kSlides] - f.pool.free_blocks()[kSlides]; }
  void ExpectRight(SequenceId id, const DecoderState& state) {
    for (uint32_t choice = 0; choice < state.choices.size(); ++choice) {
      EXPECT_EQ(f.seen[id].ids(choice), f.Expected(state, choice)) << id << ", " << choice;
    }
    EXPECT_TRUE(f.seen[id].finished());
  }
  void ExpectIdle() {
    EXPECT_TRUE(f.engine.idle());
    EXPECT_EQ(f.pool.free_blocks(), f.pool.capacity());
  }

  std::map<std::pair<SequenceId, uint32_t>, uint32_t> ends;
  std::set<SequenceId> again;  // computed something twice after it was past the window
  uint32_t most = 0;           // blocks held of the group that slides
  EngineFixture f;
};

TEST(WindowsTest, TheWindowDecidesTokens) {
  const DecoderState state = Ignoring(FixtureState(FixturePrompt(40, 1), 30, 3));
  std::set<std::vector<TokenId>> answers;
  for (const uint32_t window : {0u, 1u, 15u, 16u, 17u, 39u, 40u}) {
    EXPECT_TRUE(answers.insert(EngineFixture({.window = window}).Expected(state)).second) << window;
  }
  // As long as it holds all there is.
  EXPECT_FALSE(answers.insert(EngineFixture({.window = 100}).Expected(state)).second);
}

TEST(WindowsTest, TokensAreTheSameInAnyChunkingAndNothingIsHeldThatNobodySees) {
  for (const uint32_t window : kWindows) {
    for (const uint32_t step : {1u, 7u, 16u, 64u}) {
      for (const uint32_t prompt : {1u, 15u, 16u, 17u, 48u, 49u, 200u}) {
        SCOPED_TRACE(std::to_string(prompt) + " tokens in steps of " + std::to_string(step) +
                     ", window " + std::to_string(window));
        Windowed w(window, {.step_tokens = step, .context_length = 512});
        const DecoderState state = Ignoring(FixtureState(FixturePrompt(prompt, prompt), 70, 3));
        const SequenceId id = w.f.MustAdd(state);
        w.Run();
        w.ExpectRight(id, state);
        w.ExpectIdle();
        // The window, a step, and what both leave of their blocks; a block of growth.
        EXPECT_LE(w.most, (window + step) / kSize + 2 + 2);
      }
    }
  }
}

TEST(WindowsTest, ALongPromptHoldsABoundedNumberOfBlocksFromItsFirstStepOn) {
  Windowed w(48, {.step_tokens = 32, .context_length = 512}, 64, 8);
  const DecoderState state = Ignoring(FixtureState(FixturePrompt(450, 1), 20, 3));
  std::set<uint32_t> held;
  const SequenceId id = w.f.MustAdd(state);
  EXPECT_EQ(w.Held(), 6u + 2);
  w.f.on_token = [&](const TokenEvent&) { held.insert(w.Held()); };
  w.Run();
  w.ExpectRight(id, state);
  EXPECT_EQ(*held.rbegin(), 5u) << "three blocks and a part of one before, and one to grow";
}

TEST(WindowsTest, AChoiceThatGrowsHoldsNoMoreThanItsWindow) {
  Windowed w(20, {.context_length = 512});
  const DecoderState state = Ignoring(FixtureState(FixturePrompt(10, 1), 400, 3));
  const SequenceId id = w.f.MustAdd(state);
  uint32_t most = 0;
  w.f.on_token = [&](const TokenEvent& event) {
    if (event.position > 64 && !event.last) most = std::max(most, w.Held());
  };
  w.Run();
  w.ExpectRight(id, state);
  EXPECT_EQ(most, 3u);
}

TEST(WindowsTest, WhatFitsNoPoolIsCountedByWindow) {
  // Of 30 places at most 48 + 64 - 1 slots in a row: 8 blocks, and one part.
  const DecoderState state = Ignoring(FixtureState(FixturePrompt(400, 1), 90, 3));
  Windowed fits(48, {.context_length = 512}, 31, 8 + 6);
  const SequenceId id = fits.f.MustAdd(state);
  fits.Run();
  fits.ExpectRight(id, state);
  Windowed lacks(48, {.context_length = 512}, 31, 8 + 5);
  const absl::Status status = lacks.f.Add(state).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("need 14 KV blocks, the pool has 13"), std::string::npos)
      << status;
}

TEST(WindowsTest, ChoicesShareWhatIsSeenOfThePrompt) {
  for (const uint32_t window : kWindows) {
    for (const uint32_t prompt : {15u, 16u, 17u, 40u, 100u}) {
      SCOPED_TRACE(std::to_string(prompt) + " tokens, window " + std::to_string(window));
      Windowed w(window, {.step_tokens = 32, .context_length = 512});
      DecoderState state = Ignoring(FixtureState(FixturePrompt(prompt, 1), 60, 7, 3));
      state.stop.stop_token_ids = {w.f.Expected(state, 1)[12]};  // one ends early
      const SequenceId id = w.f.MustAdd(state);
      w.Run();
      w.ExpectRight(id, state);
      w.ExpectIdle();
    }
  }
}

TEST(WindowsTest, WhoGaveWayPastTheWindowComputesItAgain) {
  for (const uint32_t window : kWindows) {
    for (const uint32_t n : {1u, 3u}) {
      SCOPED_TRACE(std::to_string(n) + " choices, window " + std::to_string(window));
      Windowed w(window, {.step_tokens = 20, .context_length = 512}, n == 1 ? 20 : 34);
      DecoderState old = Ignoring(FixtureState(FixturePrompt(100, 1), 200, 3));
      DecoderState young = Ignoring(FixtureState(FixturePrompt(70, 2), 120, 4, n));
      old.age = std::chrono::milliseconds(20);
      const SequenceId first = w.f.MustAdd(old);
      const SequenceId second = w.f.MustAdd(young);
      w.Run();
      w.ExpectRight(first, old);
      w.ExpectRight(second, young);
      EXPECT_EQ(w.again, std::set<SequenceId>{second});
      w.ExpectIdle();
    }
  }
}

// A source's blocks that the first token after the prompt sees are shipped, and no others.
TEST(WindowsTest, APromptGoesOnElsewhereWithWhatIsStillSeen) {
  for (const uint32_t window : kWindows) {
    for (const uint32_t prompt : {16u, 50u, 200u}) {
      SCOPED_TRACE(std::to_string(prompt) + " tokens, window " + std::to_string(window));
      Windowed source(window, {.step_tokens = 24, .context_length = 512});
      Windowed sink(window, {.step_tokens = 24, .context_length = 512});
      DecoderState state = Ignoring(FixtureState(FixturePrompt(prompt, 4), 60, 9));
      const SequenceId from = source.f.MustAdd(state, SequenceMode::kPrefillOnly);
      source.Run();
      state.choices[0].tokens = source.f.seen[from].ids();
      const kv::SlidingWindows& windows = sink.f.options.engine.windows;
      const kv::BlockPlaces places = *kv::PlacesNeeded(prompt, 1, 60, kSize);
      kv::BlockLease lease = *sink.f.pool.Take(windows.Needed(places, prompt, 2));
      windows.Place(places, prompt, lease);
      const kv::GroupBlocks& blocks = source.f.engine.Blocks(from);
      for (uint32_t layer = 0; layer < 3; ++layer) {
        const uint32_t group = source.f.arena->layout().layers[layer].group;
        for (uint32_t i = windows.FirstSeen(group, prompt); i < blocks[group].size(); ++i) {
          for (uint32_t arena = 0; arena < 2; ++arena) {
            const auto piece = source.f.arena->Piece(layer, arena, blocks[group][i]);
            const auto to = sink.f.arena->Piece(layer, arena, lease.blocks()[group][i]);
            std::memcpy(to.data(), piece.data(), piece.size());
          }
        }
      }
      const uint32_t seen = (prompt + kSize - 1) / kSize - windows.FirstSeen(kSlides, prompt);
      EXPECT_EQ(source.Held(), seen);
      const auto id =
          sink.f.engine.Add({.state = state, .lease = std::move(lease), .filled = prompt});
      ASSERT_TRUE(id.ok()) << id.status();
      sink.Run();
      sink.ExpectRight(*id, state);
      sink.ExpectIdle();
    }
  }
}

DecoderState RandomState(Random& random) {
  DecoderState state = FixtureState(
      FixturePrompt(1 + static_cast<uint32_t>(random.Below(150)), random.Next64() % 1000),
      1 + static_cast<uint32_t>(random.Below(90)), random.Next64(),
      1 + static_cast<uint32_t>(random.Below(3)));
  state.age = std::chrono::milliseconds(random.Below(1000));
  state.stop.ignore_eos = random.Below(2) == 0;
  if (random.Below(3) == 0) state.stop.stop_token_ids = {static_cast<TokenId>(random.Below(256))};
  if (random.Below(4) == 0) state.logprobs.prompt = static_cast<uint32_t>(random.Below(3));
  return state;
}

// Requests that come when it suits them into pools in which the largest one just fits. Returns how
// often one gave way past its window.
size_t RunSeed(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  SeededRandom random(seed);
  static constexpr uint32_t kBudgets[] = {1, 7, 16, 17, 64, 512};
  const EngineOptions engine{.step_tokens = kBudgets[random.Below(6)],
                             .max_running = 1 + static_cast<uint32_t>(random.Below(16)),
                             .context_length = 256};
  const uint32_t window = kWindows[random.Below(5)];
  std::vector<DecoderState> states;
  std::vector<uint32_t> largest(2);
  for (size_t i = 0; i < 12; ++i) {
    const DecoderState& state = states.emplace_back(RandomState(random));
    const auto n = static_cast<uint32_t>(state.choices.size());
    const kv::SlidingWindows windows(FakeLayout(kSize, window), engine.step_tokens);
    const std::vector<uint32_t> needed = windows.Needed(
        *kv::PlacesNeeded(state.prompt.size(), n, state.stop.max_tokens, kSize), 0, 2);
    for (size_t g = 0; g < 2; ++g) largest[g] = std::max(largest[g], needed[g]);
  }
  const bool one_is_plenty = random.Below(2) == 0;
  Windowed w(window, engine, largest[0] * (one_is_plenty ? 3 : 1), largest[1]);
  std::map<size_t, SequenceId> ids;
  std::set<SequenceId> removed;
  for (size_t i = 0; i < states.size(); ++i) {
    for (int attempt = 0; attempt < 3; ++attempt) {
      w.f.world.After(std::chrono::microseconds(random.Below(30000)), [&, i] {
        if (ids.contains(i)) return;
        const absl::StatusOr<SequenceId> id = w.f.Add(states[i]);
        if (id.ok()) ids[i] = *id;
        EXPECT_NE(id.status().code(), absl::StatusCode::kInvalidArgument) << id.status();
      });
    }
    if (random.Below(4) > 0) continue;
    w.f.world.After(std::chrono::microseconds(random.Below(40000)), [&, i] {
      if (!ids.contains(i) || w.f.seen[ids[i]].finished()) return;
      removed.insert(ids[i]);
      w.f.engine.Remove(ids[i]);
    });
  }
  w.Run();
  for (const auto& [i, id] : ids) {
    if (!removed.contains(id)) w.ExpectRight(id, states[i]);
  }
  EXPECT_FALSE(ids.empty());
  w.ExpectIdle();
  return w.again.size();
}

TEST(WindowsTest, RandomCompanyInTightPoolsChangesNothing) {
  size_t again = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) again += RunSeed(seed);
  EXPECT_GT(again, 50u);
}

// The net itself.
TEST(FakeModelTest, AByteOutsideOfTheWindowDoesNotCountAndOneInsideDoes) {
  for (const uint32_t slot : {9u, 10u}) {
    EngineFixture f({.window = 16});
    const DecoderState state = Ignoring(FixtureState(FixturePrompt(20, 1), 30, 3));
    const SequenceId id = f.MustAdd(state);
    f.on_token = [&](const TokenEvent& event) {
      if (event.position != 25) return;                    // the next one sees from position 10 on
      f.arena->Piece(1, 0, 0)[slot * 16] ^= std::byte{1};  // the first block taken
    };
    f.Run();
    EXPECT_EQ(f.seen[id].ids() == f.Expected(state), slot == 9);
  }
}

}  // namespace
}  // namespace baton::engine
