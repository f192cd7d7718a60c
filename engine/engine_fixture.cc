#include "engine/engine_fixture.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "kv/block_demand.h"
#include "text/test_vocab.h"

namespace baton::engine {

namespace {

std::unique_ptr<kv::KvArena> MakeArena(const EngineFixture::Options& options) {
  auto arena = kv::KvArena::Create(FakeLayout(options.engine.block_size, options.window),
                                   {.blocks = options.pool_blocks()});
  BATON_CHECK(arena.ok());
  return *std::move(arena);
}

uint32_t MaxTokensAtFirst(const DecoderState& state, uint32_t block_size) {
  size_t sampled = 0;
  for (const ChoiceState& choice : state.choices) sampled = std::max(sampled, choice.tokens.size());
  return kv::TokensAtFirst(static_cast<uint32_t>(sampled), state.stop.max_tokens, block_size);
}

EngineFixture::Options WithWindows(EngineFixture::Options options) {
  options.engine.windows = kv::SlidingWindows(FakeLayout(options.engine.block_size, options.window),
                                              options.engine.step_tokens);
  return options;
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
    : options(WithWindows(std::move(fixture_options))),
      arena(MakeArena(options)),
      pool(options.pool_blocks()),
      cache({.block_size = options.engine.block_size}, pool, cache_metrics),
      runner(ModelOptions(options.model), executor, *arena),
      engine(options.engine, {FixtureVocab(), executor, runner, pool, metrics, *this,
                              options.window == 0 ? &cache : nullptr, options.others,
                              [this] {
                                ++rooms;
                                Freed();
                              },
                              options.coming}) {
  pool.SetFreedCallback([this] { Freed(); });
}

void EngineFixture::Freed() {
  if (std::exchange(freed_, true)) return;
  executor.Post([this] {
    freed_ = false;
    const std::optional<uint32_t> spare = engine.OnBlocksFreed();
    if (spare.has_value() && on_spare != nullptr) on_spare(*spare);
  });
}

EngineFixture::~EngineFixture() {
  pool.SetFreedCallback([] {});
}

absl::StatusOr<kv::BlockLease> EngineFixture::TakeBlocks(const DecoderState& state,
                                                         SequenceMode mode) {
  DecoderState uncached = state;
  uncached.cache_namespace.clear();
  absl::StatusOr<kv::CachedLease> taken = TakeCached(uncached, mode);
  if (!taken.ok()) return taken.status();
  return std::move(taken->lease);
}

absl::StatusOr<kv::CachedLease> EngineFixture::TakeCached(const DecoderState& state,
                                                          SequenceMode mode) {
  const bool prefill = mode == SequenceMode::kPrefillOnly;
  const auto places = kv::PlacesNeeded(
      state.prompt.size(), prefill ? 1 : static_cast<uint32_t>(state.choices.size()),
      prefill ? 1 : MaxTokensAtFirst(state, options.engine.block_size), options.engine.block_size);
  if (!places.ok()) return places.status();
  const size_t most = state.logprobs.prompt.has_value() ? 0 : state.prompt.size() - 1;
  const std::vector<uint32_t> blocks = options.engine.windows.Needed(*places, 0, 2);
  const auto query = cache.Query(state.cache_namespace, state.prompt, most);
  if (query.has_value() && options.window == 0) return cache.Take(*query, blocks);
  absl::StatusOr<kv::BlockLease> lease = pool.Take(blocks);
  if (!lease.ok()) return lease.status();
  options.engine.windows.Place(*places, 0, *lease);
  return kv::CachedLease{*std::move(lease), {}};
}

absl::StatusOr<SequenceId> EngineFixture::Add(const DecoderState& state, SequenceMode mode,
                                              std::optional<Time> deadline) {
  absl::StatusOr<kv::CachedLease> taken = TakeCached(state, mode);
  if (!taken.ok()) return taken.status();
  return engine.Add({.state = state,
                     .lease = std::move(taken->lease),
                     .filled = taken->chain.blocks * options.engine.block_size,
                     .chain = taken->chain,
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
