// What the engine asks of a model: run one step of a ragged batch, asynchronously.
// Implementations: model/ (a real model over a Backend), engine/fake_model_runner (simulation).
#ifndef BATON_ENGINE_MODEL_RUNNER_H_
#define BATON_ENGINE_MODEL_RUNNER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/decoder_state.h"
#include "kv/block.h"
#include "sampling/logit_edits.h"

namespace baton::engine {

using SequenceId = uint64_t;
using StepId = uint64_t;

// A token to sample from a row, with uniform(sampling.seed, choice, position of the token).
struct ChoiceSample {
  uint32_t choice = 0;
  // What parameters and the choice's history do to the row's logits.
  std::vector<sampling::LogitEdit> edits = {};
};

// Consecutive tokens of one sequence: a prefill chunk (any length) or a decode row (length 1) of
// one of its choices.
struct StepItem {
  SequenceId sequence = 0;
  // Run at absolute positions [start_position, start_position + tokens.size()); their K and V are
  // written into the block table's slots. Keys [0, start_position) are read from it.
  std::vector<TokenId> tokens = {};
  uint32_t start_position = 0;
  // Per KV group, block of slot range [i * block_size, (i + 1) * block_size); long enough for the
  // last position. What lies wholly before the first token's window may be kv::kNoBlock.
  std::vector<std::vector<kv::BlockId>> block_tables = {};
  // To be sampled of the last token's row: at the end of a prompt the first token of every choice,
  // in a decode row that choice's next. Empty: nothing is.
  std::vector<ChoiceSample> samples = {};
  SamplingParams sampling = {};
  // With each sampled token, its log probabilities and those of so many others; absent: none.
  std::optional<uint32_t> top_logprobs = std::nullopt;
  // The prompt's tokens that follow the first scored.size() tokens of this item, to be scored with
  // so many others.
  std::vector<TokenId> scored = {};
  uint32_t scored_top = 0;
};

struct Step {
  StepId id = 0;
  // Zeroed before anything runs, so that unwritten slots are never read or shipped unzeroed.
  std::vector<kv::BlockRef> zero_blocks = {};
  // Done after that, before any item runs. No block is both read and written by these.
  std::vector<kv::BlockCopy> copy_blocks = {};
  std::vector<StepItem> items = {};
};

struct SampledToken {
  TokenId token = 0;
  std::optional<TokenLogprobs> logprobs = std::nullopt;  // when asked for
};

// Of one item, in the order of Step::items.
struct ItemResult {
  absl::Status status;  // INTERNAL: a logit was NaN; the item's sequence ends, others go on
  std::vector<SampledToken> sampled = {};  // of StepItem::samples
  std::vector<TokenLogprobs> scored = {};  // of StepItem::scored
};

struct StepResult {
  StepId id = 0;
  // Not OK: the step as a whole failed and `items` is empty.
  absl::Status status;
  std::vector<ItemResult> items;
};

// Thread-safety: called from the engine's executor only; the listener is called there, never inside
// Submit. At most one step is in flight. A step in flight pins every block it names.
class ModelRunner {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // K and V of this layer are in the blocks for every item of the step. Called for each layer in
    // order, before OnStepDone. `layer` counts over the whole model.
    virtual void OnLayerReady(StepId step, uint32_t layer) = 0;
    virtual void OnStepDone(StepResult result) = 0;
  };

  virtual ~ModelRunner() = default;

  // Before the first Submit; must outlive the runner.
  virtual void SetListener(Listener* listener) = 0;

  // Returns at once.
  virtual void Submit(Step step) = 0;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_MODEL_RUNNER_H_
