// One worker's engine over the fake model, with a listener that keeps what it hears. For tests.
#ifndef BATON_ENGINE_ENGINE_FIXTURE_H_
#define BATON_ENGINE_ENGINE_FIXTURE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/metrics.h"
#include "common/sim_executor.h"
#include "engine/engine.h"
#include "engine/engine_metrics.h"
#include "engine/fake_model_runner.h"
#include "engine/room_holder.h"
#include "kv/arena.h"
#include "kv/block_pool.h"
#include "kv/prefix_cache.h"
#include "text/vocab.h"

namespace baton::engine {

// Bytes 0-255, "end" (256), which ends a choice, and "word" (257), a normal token.
const Vocab& FixtureVocab();
inline constexpr TokenId kFixtureEnd = 256;

// Prompt and parameters of one generation.
DecoderState FixtureState(std::vector<TokenId> prompt, uint32_t max_tokens, uint64_t seed,
                          uint32_t n = 1);
std::vector<TokenId> FixturePrompt(uint32_t length, uint64_t seed);

class EngineFixture : public Engine::Listener {
 public:
  struct Options {
    EngineOptions engine{.context_length = 512};
    uint32_t blocks = 64;  // of each group
    FakeModelRunner::Options model{};
    RoomHolder* others = nullptr;
    std::function<uint32_t()> coming = nullptr;
    uint32_t window = 0;                                 // of group 1; with one there is no cache
    std::optional<uint32_t> slid_blocks = std::nullopt;  // of group 1, if others than of group 0
    std::vector<uint32_t> pool_blocks() const { return {blocks, slid_blocks.value_or(blocks)}; }
  };

  struct Seen {
    std::vector<TokenEvent> tokens;
    std::vector<TokenLogprobs> prompt_logprobs;  // checked: without a gap, before the tokens
    std::vector<TokenId> ids(uint32_t choice = 0) const;
    std::optional<absl::Status> failed;
    struct Layer {
      uint32_t layer = 0;
      uint32_t tokens = 0;
    };
    std::vector<Layer> layers;
    bool finished() const;  // every choice
  };

  explicit EngineFixture(Options options);
  ~EngineFixture() override;

  // Takes blocks for it, with a cached prefix if its state names a namespace, and adds it.
  absl::StatusOr<SequenceId> Add(const DecoderState& state,
                                 SequenceMode mode = SequenceMode::kGenerate,
                                 std::optional<Time> deadline = std::nullopt);
  SequenceId MustAdd(const DecoderState& state, SequenceMode mode = SequenceMode::kGenerate);

  // Blocks for `state` to begin with.
  absl::StatusOr<kv::BlockLease> TakeBlocks(const DecoderState& state, SequenceMode mode);
  absl::StatusOr<kv::CachedLease> TakeCached(const DecoderState& state, SequenceMode mode);
  std::vector<TokenId> Expected(const DecoderState& state, uint32_t choice = 0) const;
  void Run() { (void)world.RunUntilIdle(); }

  void OnLayerReady(SequenceId sequence, uint32_t layer, uint32_t tokens) override;
  void OnPromptLogprobs(SequenceId sequence, uint32_t position,
                        std::vector<TokenLogprobs> logprobs) override;
  void OnToken(const TokenEvent& event) override;
  void OnSequenceFailed(SequenceId sequence, absl::Status status) override;
  void OnStepEnd() override;

  const Options options;
  SimWorld world;
  SimExecutor executor{world, "worker"};
  std::unique_ptr<kv::KvArena> arena;
  kv::BlockPool pool;
  MetricsRegistry registry;
  EngineMetrics metrics{registry};
  kv::PrefixCacheMetrics cache_metrics{registry};
  kv::PrefixCache cache;
  FakeModelRunner runner;
  Engine engine;

  std::map<SequenceId, Seen> seen;
  uint32_t step_ends = 0;
  uint32_t rooms = 0;  // calls of Engine::Environment::on_room
  std::function<void(const TokenEvent&)> on_token;

  // Others may take blocks but for so many.
  std::function<void(uint32_t)> on_spare;

 private:
  void Freed();
  bool freed_ = false;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_ENGINE_FIXTURE_H_
