#include "engine/engine.h"

#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_fixture.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using std::chrono::milliseconds;

uint32_t Free(const EngineFixture& f) {
  return f.pool.Counts()[static_cast<size_t>(kv::BlockState::kFree)];
}

DecoderState Ignoring(DecoderState state) {
  state.stop.ignore_eos = true;
  return state;
}

TEST(EngineTest, GeneratesUntilMaxTokensAndGivesItsBlocksBack) {
  EngineFixture f({});
  const DecoderState state = Ignoring(FixtureState(FixturePrompt(40, 1), 20, 7));
  const SequenceId id = f.MustAdd(state);
  f.Run();
  const EngineFixture::Seen& seen = f.seen[id];
  EXPECT_EQ(seen.ids(), f.Expected(state));
  ASSERT_EQ(seen.tokens.size(), 20u);
  for (uint32_t i = 0; i < 20; ++i) EXPECT_EQ(seen.tokens[i].position, 40 + i);
  EXPECT_EQ(seen.tokens.back().finish_reason, FinishReason::kLength);
  EXPECT_TRUE(f.engine.idle());
  EXPECT_EQ(Free(f), 128u);
}

TEST(EngineTest, TheModelsEndTokenEndsUnlessIgnored) {
  // Seeds are tried until one samples the end token early.
  for (uint64_t seed = 0; seed < 200; ++seed) {
    EngineFixture f({});
    DecoderState state = FixtureState(FixturePrompt(5, seed), 60, seed);
    const std::vector<TokenId> expected = f.Expected(state);
    if (expected.back() != kFixtureEnd) continue;
    const SequenceId id = f.MustAdd(state);
    state.stop.ignore_eos = true;
    const SequenceId ignoring = f.MustAdd(state);
    f.Run();
    EXPECT_EQ(f.seen[id].ids(), expected);
    EXPECT_EQ(f.seen[id].tokens.back().finish_reason, FinishReason::kStop);
    EXPECT_EQ(f.seen[ignoring].tokens.size(), 60u);
    return;
  }
  FAIL() << "no seed sampled the end token";
}

TEST(EngineTest, StopIdAndStopStringEndTheChoice) {
  EngineFixture f({});
  const DecoderState plain = Ignoring(FixtureState(FixturePrompt(10, 3), 12, 3));
  const std::vector<TokenId> tokens = f.Expected(plain);
  DecoderState by_id = plain;
  by_id.stop.stop_token_ids = {tokens[4]};
  DecoderState by_string = plain;
  by_string.stop.stop_strings = {std::string(FixtureVocab().Bytes(tokens[2])) +
                                 std::string(FixtureVocab().Bytes(tokens[3]))};
  const SequenceId id = f.MustAdd(by_id);
  const SequenceId string = f.MustAdd(by_string);
  f.Run();
  EXPECT_EQ(f.seen[id].ids(), f.Expected(by_id));
  EXPECT_LE(f.seen[id].tokens.size(), 5u);
  EXPECT_EQ(f.seen[string].tokens.size(), 4u);
  EXPECT_EQ(f.seen[string].tokens.back().finish_reason, FinishReason::kStop);
  EXPECT_EQ(f.seen[string].tokens.back().visible_bytes, 2u);
}

TEST(EngineTest, TheContextEndsWhatMaxTokensDoesNot) {
  EngineFixture f({.engine = {.context_length = 64}});
  const DecoderState state = Ignoring(FixtureState(FixturePrompt(60, 1), 9, 1));
  const SequenceId id = f.MustAdd(state);
  f.Run();
  EXPECT_EQ(f.seen[id].tokens.size(), 4u);
  EXPECT_EQ(f.seen[id].tokens.back().finish_reason, FinishReason::kLength);
}

TEST(EngineTest, APrefillKeepsItsBlocksUntilRemoved) {
  EngineFixture f({});
  const DecoderState state = FixtureState(FixturePrompt(100, 2), 20, 5);
  const SequenceId id = f.MustAdd(state, SequenceMode::kPrefillOnly);
  f.Run();
  const EngineFixture::Seen& seen = f.seen[id];
  ASSERT_EQ(seen.tokens.size(), 1u);
  EXPECT_EQ(seen.tokens[0].token, f.Expected(state)[0]);
  EXPECT_EQ(f.pool.Counts()[static_cast<size_t>(kv::BlockState::kLive)], 14u);
  f.engine.Remove(id);
  EXPECT_EQ(Free(f), 128u);
}

TEST(EngineTest, LayersOfEachChunkAreAnnouncedInOrder) {
  EngineFixture f({});  // 64 tokens a step
  const SequenceId id =
      f.MustAdd(FixtureState(FixturePrompt(100, 2), 20, 5), SequenceMode::kPrefillOnly);
  f.Run();
  std::string heard;
  for (const auto& layer : f.seen[id].layers) {
    heard += std::to_string(layer.layer) + ":" + std::to_string(layer.tokens) + " ";
  }
  EXPECT_EQ(heard, "0:64 1:64 2:64 0:100 1:100 2:100 ");
}

// What a sink does: blocks filled elsewhere, the first token sampled elsewhere.
TEST(EngineTest, ACommittedReservationGoesOnWhereTheSourceStopped) {
  EngineFixture source({});
  EngineFixture sink({});
  DecoderState state = Ignoring(FixtureState(FixturePrompt(50, 4), 20, 9));
  const std::vector<TokenId> expected = source.Expected(state);
  kv::BlockLease from = *source.TakeBlocks(state, SequenceMode::kPrefillOnly);
  const kv::GroupBlocks source_blocks = from.blocks();
  const auto prefill = source.engine.Add({.state = state,
                                          .lease = std::move(from),
                                          .mode = SequenceMode::kPrefillOnly,
                                          .deadline = {}});
  source.Run();
  state.choices[0].tokens = source.seen[*prefill].ids();
  kv::BlockLease lease = *sink.TakeBlocks(state, SequenceMode::kGenerate);
  for (uint32_t layer = 0; layer < 3; ++layer) {
    const uint32_t group = source.arena->layout().layers[layer].group;
    for (size_t i = 0; i < source_blocks[group].size(); ++i) {
      for (uint32_t arena = 0; arena < 2; ++arena) {
        const auto piece = source.arena->Piece(layer, arena, source_blocks[group][i]);
        std::memcpy(sink.arena->Piece(layer, arena, lease.blocks()[group][i]).data(), piece.data(),
                    piece.size());
      }
    }
  }
  const auto id =
      sink.engine.Add({.state = state, .lease = std::move(lease), .filled = 50, .mode = {}});
  ASSERT_TRUE(id.ok()) << id.status();
  sink.Run();
  EXPECT_EQ(sink.seen[*id].ids(), expected);
  EXPECT_EQ(sink.seen[*id].tokens[0].position, 50u);
}

// Everything that history and parameters do to a row, at once.
DecoderState Penalized() {
  DecoderState state = FixtureState(FixturePrompt(50, 4), 20, 9);
  state.sampling.presence_penalty = 0.5f;
  state.sampling.frequency_penalty = -1.25f;
  state.sampling.repetition_penalty = 1.5f;
  state.sampling.logit_bias = {{7, 3}, {kFixtureEnd, 1}};
  state.stop.min_tokens = 20;
  return state;
}

TEST(EngineTest, PenaltiesBiasAndMinTokensReachTheModelWithTheWholeHistory) {
  EngineFixture f({});
  const DecoderState state = Penalized();
  const std::vector<TokenId> expected = f.Expected(state);
  const SequenceId id = f.MustAdd(state);
  // Joins with tokens that were sampled elsewhere.
  DecoderState half = state;
  half.choices[0].tokens.assign(expected.begin(), expected.begin() + 9);
  const SequenceId taken_over = f.MustAdd(half);
  DecoderState plain = state;
  plain.sampling = SamplingParams();
  plain.sampling.seed = state.sampling.seed;
  const SequenceId other = f.MustAdd(plain);
  f.Run();
  EXPECT_EQ(f.seen[id].ids(), expected);
  EXPECT_EQ(f.seen[taken_over].ids(), expected);
  EXPECT_NE(f.seen[other].ids(), expected);
  EXPECT_EQ(expected.size(), 20u);
}

TEST(EngineTest, LogprobsComeWithTokensOnlyWhenAskedFor) {
  EngineFixture f({});
  DecoderState state = Ignoring(FixtureState(FixturePrompt(20, 4), 5, 9));
  const SequenceId plain = f.MustAdd(state);
  state.logprobs.output = 3;
  const SequenceId asking = f.MustAdd(state);
  f.Run();
  ASSERT_EQ(f.seen[asking].tokens.size(), 5u);
  for (const TokenEvent& event : f.seen[asking].tokens) {
    EXPECT_EQ(event.logprobs, FakeLogprobs(event.token, 3));
  }
  for (const TokenEvent& event : f.seen[plain].tokens) EXPECT_FALSE(event.logprobs.has_value());
}

std::vector<TokenLogprobs> FakePromptLogprobs(const std::vector<TokenId>& prompt, uint32_t top) {
  std::vector<TokenLogprobs> out;
  for (size_t i = 1; i < prompt.size(); ++i) out.push_back(FakeLogprobs(prompt[i], top));
  return out;
}

TEST(EngineTest, PromptLogprobsAreTheSameForAnyChunking) {
  for (const uint32_t step_tokens : {1u, 7u, 16u, 64u}) {
    EngineFixture f({.engine = {.step_tokens = step_tokens, .context_length = 512}});
    DecoderState state = Ignoring(FixtureState(FixturePrompt(33, 4), 3, 9));
    state.logprobs.prompt = 2;
    const SequenceId id = f.MustAdd(state);
    const SequenceId prefill = f.MustAdd(state, SequenceMode::kPrefillOnly);
    f.Run();
    EXPECT_EQ(f.seen[id].prompt_logprobs, FakePromptLogprobs(state.prompt, 2)) << step_tokens;
    EXPECT_EQ(f.seen[prefill].prompt_logprobs, f.seen[id].prompt_logprobs) << step_tokens;
    EXPECT_EQ(f.seen[id].tokens.size(), 3u);
  }
}

TEST(EngineTest, WhatCameWithASequenceIsRepeatedLogprobsIncluded) {
  EngineFixture f({});
  DecoderState state = Ignoring(FixtureState(FixturePrompt(20, 4), 3, 9));
  state.logprobs = {1, 0};
  state.choices[0] = {{5, 6}, false, {{-1, {}}, {-2, {}}}};
  state.prompt_logprobs.assign(19, {-3, {}});
  const SequenceId id = f.MustAdd(state);
  f.Run();
  EXPECT_EQ(f.seen[id].prompt_logprobs, state.prompt_logprobs);
  ASSERT_EQ(f.seen[id].tokens.size(), 3u);
  EXPECT_EQ(f.seen[id].tokens[1].logprobs, (TokenLogprobs{-2, {}}));
  EXPECT_EQ(f.seen[id].tokens[2].logprobs, FakeLogprobs(f.seen[id].tokens[2].token, 1));
}

TEST(EngineTest, LogprobsThatDoNotFitTheirTokensAreRefused) {
  EngineFixture f({});
  const auto refused = [&f](const DecoderState& state, const std::string& field) {
    const auto added = f.Add(state);
    EXPECT_EQ(added.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(added.status().message().substr(0, field.size()), field) << added.status();
  };
  DecoderState state = Ignoring(FixtureState(FixturePrompt(20, 4), 3, 9));
  state.choices[0].tokens = {5};
  state.logprobs.output = 0;
  refused(state, "choices[0].logprobs");
  state.logprobs = {std::nullopt, 0};
  refused(state, "prompt_logprobs");  // computed elsewhere, and not brought
  state.prompt_logprobs.resize(5);
  refused(state, "prompt_logprobs");
  state = Ignoring(FixtureState(FixturePrompt(20, 4), 3, 9));
  state.sampling.logit_bias = {{1000, 1}};
  refused(state, "sampling.logit_bias");
}

TEST(EngineTest, AReplayThatHasEndedFinishesAtOnce) {
  EngineFixture f({});
  DecoderState state = FixtureState(FixturePrompt(20, 4), 2, 9);
  state.choices[0].tokens = {5, 6};
  const SequenceId id = f.MustAdd(state);
  EXPECT_TRUE(f.seen.empty());  // never inside the call
  f.Run();
  EXPECT_EQ(f.seen[id].ids(), (std::vector<TokenId>{5, 6}));
  EXPECT_TRUE(f.seen[id].finished());
  EXPECT_EQ(Free(f), 128u);
}

TEST(EngineTest, ARecoveredSequenceComputesWhatItsBlocksLack) {
  EngineFixture f({});
  DecoderState state = Ignoring(FixtureState(FixturePrompt(30, 4), 20, 9));
  const std::vector<TokenId> expected = f.Expected(state);
  state.choices[0].tokens.assign(expected.begin(), expected.begin() + 7);
  const SequenceId id = f.MustAdd(state);
  f.Run();
  EXPECT_EQ(f.seen[id].ids(), expected);
}

TEST(EngineTest, BlocksOfARemovedSequenceAreFreeWhenItsStepEnds) {
  EngineFixture f({});
  const SequenceId id = f.MustAdd(FixtureState(FixturePrompt(30, 4), 20, 9));
  ASSERT_TRUE(f.world.RunOne());  // the turn that starts the step
  f.engine.Remove(id);
  // The step names the prompt's two blocks of each group; the room to grow is free at once.
  EXPECT_EQ(f.pool.Counts()[static_cast<size_t>(kv::BlockState::kQuarantined)], 4u);
  f.Run();
  EXPECT_EQ(Free(f), 128u);
  EXPECT_TRUE(f.seen[id].tokens.empty());
  EXPECT_TRUE(f.engine.idle());
}

TEST(EngineTest, ADeadlineEndsTheSequence) {
  EngineFixture f({});
  const auto id = f.Add(FixtureState(FixturePrompt(30, 4), 200, 9), SequenceMode::kGenerate,
                        f.executor.Now() + milliseconds(2));
  f.Run();
  ASSERT_TRUE(f.seen[*id].failed.has_value());
  EXPECT_EQ(f.seen[*id].failed->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(f.seen[*id].tokens.size(), 100u);
  EXPECT_EQ(Free(f), 128u);
}

TEST(EngineTest, NanLogitsEndOneSequenceAndNoOther) {
  EngineFixture f({.model = {.nan = [](const StepItem& item) {
                     return item.sampling.seed == 13 && item.start_position > 12;
                   }}});
  const DecoderState good = Ignoring(FixtureState(FixturePrompt(10, 1), 10, 7));
  const SequenceId id = f.MustAdd(good);
  const SequenceId bad = f.MustAdd(FixtureState(FixturePrompt(10, 1), 10, 13));
  f.Run();
  EXPECT_EQ(f.seen[id].ids(), f.Expected(good));
  ASSERT_TRUE(f.seen[bad].failed.has_value());
  EXPECT_EQ(f.seen[bad].failed->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(f.seen[bad].tokens.size(), 4u);
  EXPECT_EQ(Free(f), 128u);
}

TEST(EngineTest, NewOnesJoinAndFinishedOnesLeaveBetweenAnyTwoSteps) {
  std::vector<std::vector<SequenceId>> steps;
  EngineFixture f({.model = {.on_step = [&](const Step& step) {
                     steps.emplace_back();
                     for (const StepItem& item : step.items) {
                       steps.back().push_back(item.sequence);
                     }
                   }}});
  const SequenceId a = f.MustAdd(Ignoring(FixtureState(FixturePrompt(10, 1), 5, 7)));
  SequenceId b = 0;
  f.on_token = [&](const TokenEvent& event) {
    if (event.sequence == a && event.position == 11) {
      b = f.MustAdd(Ignoring(FixtureState(FixturePrompt(8, 2), 5, 8)));
    }
  };
  f.Run();
  const std::vector<std::vector<SequenceId>> expected = {{a},    {a}, {a, b}, {a, b},
                                                         {a, b}, {b}, {b}};
  EXPECT_EQ(steps, expected);
}

TEST(EngineTest, OneStepEndForAllEventsOfAStep) {
  EngineFixture f({});
  for (uint64_t i = 0; i < 5; ++i) {
    f.MustAdd(Ignoring(FixtureState(FixturePrompt(10, i), 3, i)));
  }
  f.Run();
  EXPECT_EQ(f.step_ends, 3u);
}

TEST(EngineTest, RefusesWhatItCannotRunAndKeepsNothing) {
  EngineFixture f({});
  const auto refused = [&](const DecoderState& state) {
    kv::BlockLease lease = *f.pool.Take({8, 8});
    const auto added = f.engine.Add({.state = state, .lease = std::move(lease)});
    EXPECT_EQ(added.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Free(f), 128u);
    return std::string(added.status().message());
  };
  EXPECT_NE(refused(FixtureState({}, 3, 1)).find("prompt"), std::string::npos);
  EXPECT_NE(refused(FixtureState({5, 258}, 3, 1)).find("prompt[1]"), std::string::npos);
  EXPECT_NE(refused(FixtureState(FixturePrompt(512, 1), 3, 1)).find("context"), std::string::npos);
  EXPECT_NE(refused(FixtureState({5}, 0, 1)).find("max_tokens"), std::string::npos);
  EXPECT_NE(refused(FixtureState(FixturePrompt(129, 1), 3, 1)).find("lease"), std::string::npos);
  DecoderState beyond_its_end = FixtureState({5}, 2, 1);
  beyond_its_end.choices[0].tokens = {1, 2, 3};
  EXPECT_NE(refused(beyond_its_end).find("choices[0].tokens"), std::string::npos);
  DecoderState negative = FixtureState({5}, 2, 1);
  negative.choices[0].tokens = {-1};
  EXPECT_NE(refused(negative).find("choices[0].tokens[0]"), std::string::npos);
}

TEST(EngineTest, RefusesWhatCouldOutgrowTheEmptyPool) {
  EngineFixture f({.blocks = 8});
  EXPECT_TRUE(f.Add(FixtureState({5}, 128, 1)).ok());  // 1 + 127 slots
  f.Run();
  const absl::Status status = f.Add(FixtureState({5}, 129, 1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "prompt, n and max_tokens need 9 KV blocks, the pool has 8");
}

TEST(EngineTest, MetricsAndLoadMove) {
  EngineFixture f({});
  f.MustAdd(Ignoring(FixtureState(FixturePrompt(100, 1), 5, 7)));
  f.engine.SetWaitingForRoom(3);
  EXPECT_EQ(f.engine.Load().waiting, 4u);
  EXPECT_EQ(f.engine.Load().queued_prefill_tokens, 100u);
  EXPECT_EQ(f.metrics.requests_waiting.Value(), 4);
  f.engine.SetWaitingForRoom(0);
  f.Run();
  EXPECT_EQ(f.metrics.prompt_tokens.Value(), 100);
  EXPECT_EQ(f.metrics.generation_tokens.Value(), 5);
  EXPECT_EQ(f.metrics.requests_running.Value(), 0);
  EXPECT_GT(f.metrics.step_seconds.Count(), 0u);
  EXPECT_EQ(f.metrics.kv_blocks[0].Value(), 128);
  EXPECT_GT(f.engine.Load().prefill_tokens_per_second, 0);
  EXPECT_GT(f.engine.Load().decode_step_seconds, 0);
  EXPECT_TRUE(f.engine.Load().step_times.measured());
  // The first one had no prediction.
  EXPECT_EQ(f.metrics.step_prediction_ratio.Count(), f.metrics.step_seconds.Count() - 1);
}

TEST(EngineTest, LoadSaysWhatTheDecodesOfTheNextStepAttendTo) {
  EngineFixture f({});
  f.MustAdd(Ignoring(FixtureState(FixturePrompt(20, 1), 5, 7)));
  f.MustAdd(Ignoring(FixtureState(FixturePrompt(30, 2), 5, 7)));
  EXPECT_EQ(f.engine.Load().decodes, StepWork());
  std::optional<StepWork> decodes;
  f.on_token = [&](const TokenEvent& event) {
    if (event.position == 31 && !decodes.has_value()) decodes = f.engine.Load().decodes;
  };
  f.Run();
  // Both prompts ran in the first step, so the other has two tokens as well.
  EXPECT_EQ(decodes, (StepWork{.decode_rows = 2, .decode_keys = 22 + 32}));
}

TEST(EngineTest, ALongPromptRunsInStepsThatArePlannedToEndInTime) {
  std::vector<std::pair<Time, size_t>> steps;  // start, tokens
  std::unique_ptr<EngineFixture> f;
  f = std::make_unique<EngineFixture>(EngineFixture::Options{
      .engine = {.step_tokens = 512, .planned_step = milliseconds(250), .context_length = 4096},
      .blocks = 256,
      .model = {.step_cost = milliseconds(10),
                .token_cost = milliseconds(1),
                .on_step = [&](const Step& step) {
                  steps.emplace_back(f->executor.Now(), step.items.front().tokens.size());
                }}});
  const DecoderState state = FixtureState(FixturePrompt(2000, 3), 1, 3);
  const SequenceId id = f->MustAdd(state);
  f->Run();
  EXPECT_EQ(f->seen[id].ids(), f->Expected(state));
  ASSERT_GT(steps.size(), 4u);
  EXPECT_EQ(steps[0].second, 64u);
  EXPECT_EQ(steps[1].second, 128u);
  for (size_t i = 2; i + 1 < steps.size(); ++i) {
    EXPECT_LE(steps[i + 1].first - steps[i].first, milliseconds(275)) << i;
    if (i + 2 < steps.size()) {
      EXPECT_GE(steps[i].second, 192u) << i;
    }
  }
}

TEST(EngineOptionsTest, NamesTheBadOption) {
  EXPECT_TRUE((EngineOptions{.context_length = 10}).Validate().ok());
  const auto text = [](const EngineOptions& o) { return std::string(o.Validate().message()); };
  EXPECT_NE(text({}).find("context_length"), std::string::npos);
  EXPECT_NE(text({.step_tokens = 0, .context_length = 9}).find("step_tokens"), std::string::npos);
  EXPECT_NE(text({.context_length = 9, .block_size = 24}).find("block_size"), std::string::npos);
}

}  // namespace
}  // namespace baton::engine
