#include "engine/engine_fixture.h"

#include <utility>

#include "common/check.h"
#include "kv/block_demand.h"
#include "text/test_vocab.h"

namespace baton::engine {

namespace {

std::unique_ptr<kv::KvArena> MakeArena(const EngineFixture::Options& options) {
  auto arena = kv::KvArena::Create(FakeLayout(options.engine.block_size),
                                   {.blocks = {options.blocks, options.blocks}});
  BATON_CHECK(arena.ok());
  return *std::move(arena);
}

FakeModelRunner::Options ModelOptions(FakeModelRunner::Options options) {
  options.vocab_size = FixtureVocab().size();
  return options;
}

}  // namespace

const Vocab& FixtureVocab() {
  static const Vocab* const vocab = [] {
    VocabData data = ByteVocabData();
    BATON_CHECK(AddEndToken("<end>", &data) == kFixtureEnd);
    AddToken("word", TokenType::kNormal, &data);
    absl::StatusOr<Vocab> made = Vocab::Create(data);
    BATON_CHECK(made.ok());
    return new Vocab(*std::move(made));
  }();
  return *vocab;
}

DecoderState FixtureState(std::vector<TokenId> prompt, uint32_t max_tokens, uint64_t seed,
                          uint32_t n) {
  DecoderState state;
  state.prompt = std::move(prompt);
  state.stop.max_tokens = max_tokens;
  state.sampling.seed = seed;
  state.choices.resize(n);
  return state;
}

std::vector<TokenId> FixturePrompt(uint32_t length, uint64_t seed) {
  std::vector<TokenId> prompt;
  for (uint32_t i = 0; i < length; ++i) {
    prompt.push_back(static_cast<TokenId>((i * 37 + seed * 101 + i * i) % 256));
  }
  return prompt;
}

std::vector<TokenId> EngineFixture::Seen::ids(uint32_t choice) const {
  std::vector<TokenId> out;
  for (const TokenEvent& event : tokens) {
    if (event.choice == choice) out.push_back(event.token);
  }
  return out;
}

bool EngineFixture::Seen::finished() const { return !tokens.empty() && tokens.back().last; }

EngineFixture::EngineFixture(Options fixture_options)
    : options(std::move(fixture_options)),
      arena(MakeArena(options)),
      pool({options.blocks, options.blocks}),
      runner(ModelOptions(options.model), executor, *arena),
      engine(options.engine, {FixtureVocab(), executor, runner, pool, metrics, *this}) {}

absl::StatusOr<kv::BlockLease> EngineFixture::TakeBlocks(const DecoderState& state,
                                                         SequenceMode mode) {
  const bool prefill = mode == SequenceMode::kPrefillOnly;
  const auto blocks = kv::BlocksNeeded(
      state.prompt.size(), prefill ? 1 : static_cast<uint32_t>(state.choices.size()),
      prefill ? 1 : state.stop.max_tokens, options.engine.block_size);
  if (!blocks.ok()) return blocks.status();
  return pool.Take({*blocks, *blocks});
}

absl::StatusOr<SequenceId> EngineFixture::Add(const DecoderState& state, SequenceMode mode,
                                              std::optional<Time> deadline) {
  absl::StatusOr<kv::BlockLease> lease = TakeBlocks(state, mode);
  if (!lease.ok()) return lease.status();
  return engine.Add({.state = state,
                     .lease = *std::move(lease),
                     .filled = 0,
                     .mode = mode,
                     .deadline = deadline});
}

SequenceId EngineFixture::MustAdd(const DecoderState& state, SequenceMode mode) {
  const absl::StatusOr<SequenceId> id = Add(state, mode);
  BATON_CHECK(id.ok());
  return *id;
}

std::vector<TokenId> EngineFixture::Expected(const DecoderState& state, uint32_t choice) const {
  return FakeContinuation(arena->layout(), FixtureVocab(), options.engine.context_length, state,
                          choice);
}

void EngineFixture::OnLayerReady(SequenceId sequence, uint32_t layer, uint32_t tokens) {
  seen[sequence].layers.push_back({layer, tokens});
}

void EngineFixture::OnPromptLogprobs(SequenceId sequence, uint32_t position,
                                     std::vector<TokenLogprobs> logprobs) {
  Seen& of = seen[sequence];
  BATON_CHECK(of.tokens.empty() && of.prompt_logprobs.size() + 1 == position);
  of.prompt_logprobs.insert(of.prompt_logprobs.end(), logprobs.begin(), logprobs.end());
}

void EngineFixture::OnToken(const TokenEvent& event) {
  seen[event.sequence].tokens.push_back(event);
  if (on_token != nullptr) on_token(event);
}

void EngineFixture::OnSequenceFailed(SequenceId sequence, absl::Status status) {
  BATON_CHECK(!seen[sequence].failed.has_value());
  seen[sequence].failed = std::move(status);
}

void EngineFixture::OnStepEnd() { ++step_ends; }

}  // namespace baton::engine
