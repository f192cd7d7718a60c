// Several choices of one request: one prompt, tokens that depend on nothing but the choice, blocks
// that each gives back by itself.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "engine/engine.h"
#include "engine/engine_fixture.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

uint32_t In(const EngineFixture& f, kv::BlockState state) {
  return f.pool.Counts()[static_cast<size_t>(state)];
}

bool AllFree(const EngineFixture& f) { return f.pool.free_blocks() == f.pool.capacity(); }

DecoderState Ignoring(DecoderState state) {
  state.stop.ignore_eos = true;
  return state;
}

void ExpectRight(EngineFixture& f, SequenceId id, const DecoderState& state) {
  const EngineFixture::Seen& seen = f.seen[id];
  for (uint32_t choice = 0; choice < state.choices.size(); ++choice) {
    EXPECT_EQ(seen.ids(choice), f.Expected(state, choice)) << "choice " << choice;
  }
  EXPECT_TRUE(seen.finished());
}

TEST(EngineChoicesTest, EachChoiceHasItsOwnTokensWhateverTheNumber) {
  for (const uint32_t prompt : {1u, 15u, 16u, 17u, 31u, 32u, 33u, 50u}) {
    for (const uint32_t n : {1u, 2u, 3u, 8u, 16u}) {
      SCOPED_TRACE(std::to_string(prompt) + " tokens, " + std::to_string(n) + " choices");
      EngineFixture f({.blocks = 128});
      const DecoderState state = Ignoring(FixtureState(FixturePrompt(prompt, prompt), 20, 7, n));
      const SequenceId id = f.MustAdd(state);
      f.Run();
      ExpectRight(f, id, state);
      EXPECT_TRUE(AllFree(f));
    }
  }
  // What is compared with above differs between choices.
  EngineFixture f({});
  const DecoderState state = Ignoring(FixtureState(FixturePrompt(20, 1), 20, 7, 3));
  EXPECT_NE(f.Expected(state, 0), f.Expected(state, 1));
  EXPECT_NE(f.Expected(state, 1), f.Expected(state, 2));
}

TEST(EngineChoicesTest, ThePromptIsComputedOnce) {
  EngineFixture f({.blocks = 128});
  f.MustAdd(Ignoring(FixtureState(FixturePrompt(40, 1), 5, 7, 8)));
  f.Run();
  EXPECT_EQ(f.metrics.prompt_tokens.Value(), 40);
  EXPECT_EQ(f.metrics.generation_tokens.Value(), 8 * 5);
}

// The bound of the design: at the first generated token, in blocks that hold something.
TEST(EngineChoicesTest, EightChoicesHoldLittleMoreThanOne) {
  const auto held_at_first_token = [](uint32_t prompt, uint32_t n) {
    EngineFixture f({.engine = {.context_length = 1024}, .blocks = 512});
    std::vector<uint32_t> held;
    f.on_token = [&](const TokenEvent& event) {
      if (event.position > prompt) return;
      held.push_back(In(f, kv::BlockState::kFilling) + In(f, kv::BlockState::kLive));
    };
    f.MustAdd(Ignoring(FixtureState(FixturePrompt(prompt, 1), 200, 7, n)));
    f.Run();
    EXPECT_EQ(held.size(), n);
    return held.back();
  };
  for (const uint32_t prompt : {505u, 511u, 512u, 513u}) {
    EXPECT_LE(held_at_first_token(prompt, 8), 1.25 * held_at_first_token(prompt, 1)) << prompt;
  }
}

// Ends at different times: by a stop id that only some meet.
TEST(EngineChoicesTest, AChoiceThatEndsGivesItsOwnBlocksBackAtOnce) {
  EngineFixture f({.blocks = 128});
  DecoderState state = Ignoring(FixtureState(FixturePrompt(40, 1), 40, 7, 3));
  state.stop.stop_token_ids = {f.Expected(state, 1)[5]};
  std::map<uint32_t, uint32_t> free_when_over;
  uint32_t over = 0;
  f.on_token = [&](const TokenEvent& event) {
    if (event.finish_reason != FinishReason::kNone) ++over;
    EXPECT_EQ(f.engine.Load().choices, 3 - over);
    EXPECT_EQ(f.engine.Load().running, over < 3 ? 1u : 0u);
    EXPECT_TRUE(f.pool.CheckIntegrity().ok()) << f.pool.CheckIntegrity();
    if (event.finish_reason == FinishReason::kNone) return;
    const uint32_t quarantined = In(f, kv::BlockState::kQuarantined);  // until the step ends
    free_when_over[event.choice] = (In(f, kv::BlockState::kFree) + quarantined) / 2;
  };
  const SequenceId id = f.MustAdd(state);
  f.Run();
  ExpectRight(f, id, state);
  // Two shared blocks; each choice began with 8 + 16 slots in 2 of its own.
  ASSERT_EQ(free_when_over.size(), 3u);
  std::set<uint32_t> seen;
  for (const auto& [choice, free] : free_when_over) seen.insert(free);
  EXPECT_EQ(free_when_over[1], 128u - 2 - 2 * 2) << "the first to end";
  EXPECT_EQ(*seen.rbegin(), 128u) << "with the last one all of them";
  EXPECT_TRUE(AllFree(f));
}

TEST(EngineChoicesTest, AChoiceWhoseFirstTokenEndsItTakesNoBlocksAlong) {
  EngineFixture f({.blocks = 128});
  DecoderState state = Ignoring(FixtureState(FixturePrompt(40, 1), 30, 7, 4));
  // Choice 0, whose part of the blocks holds the end of the prompt, and choice 2.
  state.stop.stop_token_ids = {f.Expected(state, 0)[0], f.Expected(state, 2)[0]};
  const SequenceId id = f.MustAdd(state);
  uint32_t taken = 0;
  f.on_token = [&](const TokenEvent& event) {
    if (event.choice == 3 && event.position == 40) taken = 128 - f.pool.free_blocks()[0];
  };
  f.Run();
  ExpectRight(f, id, state);
  EXPECT_EQ(f.seen[id].ids(0).size(), 1u);
  EXPECT_EQ(f.seen[id].ids(2).size(), 1u);
  EXPECT_EQ(taken, 2u + 2 * 2);  // 8 + 16 slots each, to begin with
  EXPECT_TRUE(AllFree(f));
}

TEST(EngineChoicesTest, AllFirstTokensMayEndTheSequence) {
  EngineFixture f({.blocks = 128});
  const SequenceId id = f.MustAdd(FixtureState(FixturePrompt(40, 1), 1, 7, 8));
  f.Run();
  ASSERT_EQ(f.seen[id].tokens.size(), 8u);
  for (const TokenEvent& event : f.seen[id].tokens) {
    EXPECT_EQ(event.finish_reason, FinishReason::kLength);
    EXPECT_EQ(event.last, event.choice == 7);
  }
  EXPECT_TRUE(f.engine.idle());
  EXPECT_TRUE(AllFree(f));
}

TEST(EngineChoicesTest, BlocksAreCopiedOnceAndBeforeAnyChoiceWrites) {
  std::vector<std::pair<size_t, size_t>> copies_and_items;
  EngineFixture f({.engine = {.step_tokens = 2, .context_length = 512},
                   .blocks = 128,
                   .model = {.on_step = [&](const Step& step) {
                     copies_and_items.emplace_back(step.copy_blocks.size(), step.items.size());
                   }}});
  const DecoderState state = Ignoring(FixtureState(FixturePrompt(5, 1), 4, 7, 8));
  const SequenceId id = f.MustAdd(state);
  f.Run();
  ExpectRight(f, id, state);
  // Three steps for the prompt, then two choices a step.
  ASSERT_GT(copies_and_items.size(), 4u);
  for (size_t i = 0; i < copies_and_items.size(); ++i) {
    EXPECT_EQ(copies_and_items[i].first, i == 3 ? 7u * 2 : 0u) << "step " << i;
  }
}

TEST(EngineChoicesTest, APrefillSamplesEveryFirstTokenAndHoldsThePromptAlone) {
  EngineFixture f({});
  const DecoderState state = Ignoring(FixtureState(FixturePrompt(40, 1), 30, 7, 8));
  const SequenceId id = f.MustAdd(state, SequenceMode::kPrefillOnly);
  f.Run();
  ASSERT_EQ(f.seen[id].tokens.size(), 8u);
  for (uint32_t choice = 0; choice < 8; ++choice) {
    EXPECT_EQ(f.seen[id].tokens[choice].choice, choice);
    EXPECT_EQ(f.seen[id].tokens[choice].token, f.Expected(state, choice)[0]);
  }
  EXPECT_EQ(In(f, kv::BlockState::kLive), 2 * 3u);
  EXPECT_EQ(f.seen[id].layers.size(), 3u);
  f.engine.Remove(id);
  EXPECT_TRUE(AllFree(f));
}

// What a sink does: the prompt's blocks came from elsewhere, once.
TEST(EngineChoicesTest, AHandOverGoesOnWithTheChoicesThatHaveNotEnded) {
  for (const uint32_t prompt : {31u, 32u, 33u}) {
    EngineFixture source({});
    EngineFixture sink({.blocks = 128});
    DecoderState state = Ignoring(FixtureState(FixturePrompt(prompt, 4), 20, 9, 4));
    state.stop.stop_token_ids = {source.Expected(state, 0)[0]};
    const std::vector<std::vector<TokenId>> expected = {
        source.Expected(state, 0), source.Expected(state, 1), source.Expected(state, 2),
        source.Expected(state, 3)};
    const SequenceId prefill = source.MustAdd(state, SequenceMode::kPrefillOnly);
    source.Run();
    for (const TokenEvent& event : source.seen[prefill].tokens) {
      ChoiceState& choice = state.choices[event.choice];
      choice.tokens = {event.token};
      choice.finished = event.finish_reason != FinishReason::kNone;
    }
    ASSERT_TRUE(state.choices[0].finished);
    kv::BlockLease lease = *sink.TakeBlocks(state, SequenceMode::kGenerate);
    for (uint32_t layer = 0; layer < 3; ++layer) {
      const uint32_t group = source.arena->layout().layers[layer].group;
      for (uint32_t i = 0; i < (prompt + 15) / 16; ++i) {
        for (uint32_t arena = 0; arena < 2; ++arena) {
          // A fresh pool gives blocks in order: the source's are 0, 1, 2.
          const auto piece = source.arena->Piece(layer, arena, i);
          std::memcpy(sink.arena->Piece(layer, arena, lease.blocks()[group][i]).data(),
                      piece.data(), piece.size());
        }
      }
    }
    const auto id = sink.engine.Add({.state = state, .lease = std::move(lease), .filled = prompt});
    ASSERT_TRUE(id.ok()) << id.status();
    sink.Run();
    for (uint32_t choice = 0; choice < 4; ++choice) {
      EXPECT_EQ(sink.seen[*id].ids(choice), expected[choice]) << prompt << ", choice " << choice;
    }
    EXPECT_EQ(sink.metrics.prompt_tokens.Value(), 0);
    EXPECT_TRUE(AllFree(sink));
  }
}

TEST(EngineChoicesTest, ARecoveredSequenceComputesThePromptOnceAndEachChoicesTokens) {
  EngineFixture f({.blocks = 128});
  DecoderState state = Ignoring(FixtureState(FixturePrompt(40, 4), 20, 9, 3));
  const DecoderState fresh = state;
  for (const uint32_t choice : {0u, 2u}) {  // nothing is known of choice 1
    const std::vector<TokenId> expected = f.Expected(state, choice);
    state.choices[choice].tokens.assign(expected.begin(), expected.begin() + 5 + choice);
  }
  const SequenceId id = f.MustAdd(state);
  EXPECT_EQ(f.engine.Load().queued_prefill_tokens, 40u);
  f.Run();
  ExpectRight(f, id, fresh);
  // Where a step ends before a choice's last known token, that one counts as a decode.
  EXPECT_LE(f.metrics.prompt_tokens.Value(), 40 + 5 + 7);
  EXPECT_GE(f.metrics.prompt_tokens.Value(), 40 + 4 + 6);
}

TEST(EngineChoicesTest, LogprobsAndHistoriesAreOfEachChoice) {
  EngineFixture f({.blocks = 128});
  DecoderState state = FixtureState(FixturePrompt(50, 4), 20, 9, 3);
  state.sampling.frequency_penalty = -1.25f;
  state.sampling.repetition_penalty = 1.5f;
  state.stop.min_tokens = 20;
  state.logprobs = {2, 1};
  const SequenceId id = f.MustAdd(state);
  f.Run();
  ExpectRight(f, id, state);
  EXPECT_EQ(f.seen[id].prompt_logprobs.size(), 49u) << "once, not for each choice";
  for (const TokenEvent& event : f.seen[id].tokens) {
    EXPECT_EQ(event.logprobs, FakeLogprobs(event.token, 2));
  }
}

TEST(EngineChoicesTest, RemoveAndDeadlineEndEveryChoice) {
  for (const bool by_deadline : {false, true}) {
    EngineFixture f({.blocks = 128});
    DecoderState state = Ignoring(FixtureState(FixturePrompt(40, 1), 40, 7, 4));
    state.stop.stop_token_ids = {f.Expected(state, 1)[3]};  // one has ended by then
    const Time deadline = f.executor.Now() + std::chrono::milliseconds(4);
    const auto id =
        f.Add(state, SequenceMode::kGenerate, by_deadline ? std::optional(deadline) : std::nullopt);
    ASSERT_TRUE(id.ok());
    f.on_token = [&](const TokenEvent& event) {
      if (!by_deadline && event.position == 46) f.engine.Remove(*id);
    };
    f.Run();
    EXPECT_EQ(f.seen[*id].failed.has_value(), by_deadline);
    EXPECT_EQ(f.seen[*id].ids(1).size(), 4u);
    EXPECT_LT(f.seen[*id].ids(0).size(), 40u);
    EXPECT_GE(f.seen[*id].ids(0).size(), 4u);
    EXPECT_TRUE(f.engine.idle());
    EXPECT_TRUE(AllFree(f));
  }
}

TEST(EngineChoicesTest, NanInOneChoiceEndsTheRequest) {
  EngineFixture f({.blocks = 128, .model = {.nan = [](const StepItem& item) {
                                    return item.start_position == 44 && item.samples[0].choice == 2;
                                  }}});
  const SequenceId id = f.MustAdd(Ignoring(FixtureState(FixturePrompt(40, 1), 40, 7, 4)));
  f.Run();
  ASSERT_TRUE(f.seen[id].failed.has_value());
  EXPECT_EQ(f.seen[id].failed->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(f.seen[id].ids(2).size(), 5u);
  EXPECT_TRUE(AllFree(f));
}

TEST(EngineChoicesTest, RefusesChoicesThatCannotBeRun) {
  EngineFixture f({.blocks = 128});
  const auto refused = [&f](const DecoderState& state, uint32_t blocks, uint32_t filled = 0) {
    kv::BlockLease lease = *f.pool.Take({blocks, blocks});
    const auto added = f.engine.Add({.state = state, .lease = std::move(lease), .filled = filled});
    EXPECT_EQ(added.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(AllFree(f));
    return std::string(added.status().message());
  };
  const DecoderState good = FixtureState(FixturePrompt(40, 1), 20, 7, 3);
  EXPECT_EQ(refused(FixtureState(FixturePrompt(40, 1), 20, 7, 17), 100).substr(0, 11),
            "choices: 17");
  EXPECT_EQ(refused(FixtureState(FixturePrompt(40, 1), 20, 7, 0), 100).substr(0, 10), "choices: 0");
  EXPECT_EQ(refused(good, 4).substr(0, 6), "lease:");  // 2 shared and 1 for each are needed
  EXPECT_EQ(refused(good, 8, 40).substr(0, 7), "filled:");
  DecoderState bad = good;
  bad.choices[2].tokens = {300};
  EXPECT_EQ(refused(bad, 8).substr(0, 20), "choices[2].tokens[0]");
  bad.choices[2].tokens = {5};
  bad.choices[2].finished = true;
  EXPECT_EQ(refused(bad, 8).substr(0, 20), "choices[2].finished:");
}

// Adds what fits, removes some, checks the pool after every event.
void RunSeed(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  SeededRandom random(seed);
  static constexpr uint32_t kBudgets[] = {1, 7, 16, 64, 512};
  EngineFixture f({.engine = {.step_tokens = kBudgets[random.Below(5)],
                              .max_running = 1 + static_cast<uint32_t>(random.Below(20)),
                              .context_length = 128},
                   .blocks = 30 + static_cast<uint32_t>(random.Below(100))});
  struct Wanted {
    SequenceId id = 0;
    DecoderState state;
    bool removed = false;
  };
  std::vector<Wanted> all;
  const auto arrive = [&] {
    DecoderState state = FixtureState(
        FixturePrompt(1 + static_cast<uint32_t>(random.Below(60)), random.Next64() % 1000),
        1 + static_cast<uint32_t>(random.Below(30)), random.Next64(),
        1 + static_cast<uint32_t>(random.Below(16)));
    state.age = std::chrono::milliseconds(random.Below(1000));
    for (int i = 0; i < 8; ++i) {
      state.stop.stop_token_ids.push_back(static_cast<TokenId>(random.Below(256)));
    }
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
  for (int i = 0; i < 12; ++i) {
    f.world.After(std::chrono::microseconds(random.Below(5000)), arrive);
    if (random.Below(4) == 0) f.world.After(std::chrono::microseconds(random.Below(9000)), leave);
  }
  while (f.world.RunOne()) ASSERT_TRUE(f.pool.CheckIntegrity().ok()) << f.pool.CheckIntegrity();
  for (const Wanted& wanted : all) {
    if (!wanted.removed) ExpectRight(f, wanted.id, wanted.state);
  }
  EXPECT_TRUE(f.engine.idle());
  EXPECT_TRUE(AllFree(f));
}

TEST(EngineChoicesTest, TokensAreRightInAnyCompany) {
  for (uint64_t seed = 1; seed <= 60; ++seed) RunSeed(seed);
}

}  // namespace
}  // namespace baton::engine
