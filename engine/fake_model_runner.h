// A model without weights for tests and the simulator: the next token is a hash of all earlier
// tokens that each layer's window sees, as read back from the KV blocks, so a wrong block, a
// missing piece or an unwritten slot shows as a wrong token. A step that reads or writes a place
// without a block breaks an invariant.
#ifndef BATON_ENGINE_FAKE_MODEL_RUNNER_H_
#define BATON_ENGINE_FAKE_MODEL_RUNNER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/decoder_state.h"
#include "common/executor.h"
#include "engine/model_runner.h"
#include "kv/arena.h"
#include "kv/layout.h"
#include "text/vocab.h"

namespace baton::engine {

// Three layers in two KV groups, the second with this window; 16 bytes a slot in each of two
// arenas.
kv::KvLayout FakeLayout(uint32_t block_size, uint32_t window = 0);

// What a right model samples after `tokens`: it depends on seed, choice and every edit and is never
// a forbidden id. Pure.
TokenId FakeNextToken(const kv::KvLayout& layout, int32_t vocab_size,
                      std::span<const TokenId> tokens, uint64_t seed, const ChoiceSample& sample);

// The log probabilities that the fake model gives `token`. Pure.
TokenLogprobs FakeLogprobs(TokenId token, uint32_t top);

// Every token of one choice that a right cluster delivers for `state` (those it has already
// included), the one that ends it included. Pure.
std::vector<TokenId> FakeContinuation(const kv::KvLayout& layout, const Vocab& vocab,
                                      uint32_t context_length, const DecoderState& state,
                                      uint32_t choice = 0);

// Single-threaded: runs as events of the executor, a layer at a time.
class FakeModelRunner final : public ModelRunner {
 public:
  struct Options {
    int32_t vocab_size = 0;
    Duration step_cost = std::chrono::microseconds(200);
    Duration token_cost = std::chrono::microseconds(20);
    // Optional: items whose logits are NaN.
    std::function<bool(const StepItem&)> nan = nullptr;
    // Optional: called with each step when it starts.
    std::function<void(const Step&)> on_step = nullptr;
  };

  // Both must outlive the runner.
  FakeModelRunner(Options options, Executor& executor, kv::KvArena& arena);

  void SetListener(Listener* listener) override { listener_ = listener; }
  void Submit(Step step) override;

 private:
  void RunLayer(uint32_t layer);
  void CopyBlock(const kv::BlockCopy& copy);
  ItemResult Finish(const StepItem& item) const;
  std::vector<SampledToken> Sample(const StepItem& item) const;
  uint64_t HashOfBlocks(const StepItem& item) const;

  const Options options_;
  Executor& executor_;
  kv::KvArena& arena_;
  Listener* listener_ = nullptr;
  std::optional<Step> step_;  // in flight
  Duration layer_cost_{0};
  TimerHandle next_;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_FAKE_MODEL_RUNNER_H_
