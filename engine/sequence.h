// One sequence in the engine: its tokens, how much of them is in the KV blocks, and whether it
// ends.
#ifndef BATON_ENGINE_SEQUENCE_H_
#define BATON_ENGINE_SEQUENCE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "common/executor.h"
#include "engine/model_runner.h"
#include "kv/block_table.h"
#include "sampling/logit_edits.h"
#include "text/stop.h"
#include "text/vocab.h"

namespace baton::engine {

enum class SequenceMode {
  kGenerate,     // until an end
  kPrefillOnly,  // samples one token, then keeps its blocks until removed
};

enum class FinishReason { kNone, kStop, kLength };

struct TokenEvent {
  SequenceId sequence = 0;
  uint32_t choice = 0;
  uint32_t position = 0;  // absolute: prompt length + index
  TokenId token = 0;
  uint64_t visible_bytes = 0;
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<TokenLogprobs> logprobs = std::nullopt;  // when asked for
};

// Owner: the engine.
class Sequence {
 public:
  // `state` has one choice.
  Sequence(SequenceId id, SequenceMode mode, const DecoderState& state, Time admitted_at,
           kv::BlockTable table, const Vocab& vocab, uint32_t context_length);

  SequenceId id() const { return id_; }
  SequenceMode mode() const { return mode_; }
  Time admitted_at() const { return admitted_at_; }
  kv::BlockTable& table() { return table_; }
  const kv::BlockTable& table() const { return table_; }
  const SamplingParams& sampling() const { return sampling_; }

  // Tokens [computed(), tokens) are not in the blocks yet.
  uint32_t computed() const { return table_.filled(); }
  uint32_t pending() const { return static_cast<uint32_t>(tokens_.size()) - computed(); }
  // Next: one token that was just sampled, nothing of the prompt.
  bool decoding() const { return sampled() > 0 && pending() <= 1; }
  uint32_t sampled() const { return static_cast<uint32_t>(tokens_.size()) - prompt_length_; }
  std::vector<TokenId> Chunk(uint32_t length) const;

  // What the next row is sampled with.
  std::vector<sampling::LogitEdit> Edits() const { return editor_.Edits(stop_.ForbiddenNext()); }
  const LogprobParams& logprobs() const { return logprobs_; }
  // The prompt's tokens that follow those of Chunk(length), when they are to be scored here.
  std::vector<TokenId> Scored(uint32_t length) const;

  // Nothing is to be run any more; it only keeps blocks.
  bool held() const { return held_; }

  // Appends a sampled token and decides whether it is the last.
  TokenEvent Accept(TokenId token, std::optional<TokenLogprobs> logprobs);
  // Events of the tokens that the choice came with, in order; call it once, first. INVALID_ARGUMENT
  // when they go on after an end.
  absl::StatusOr<std::vector<TokenEvent>> Replay(const ChoiceState& choice);

  bool started = false;  // has been in a step
  StepId last_step = 0;  // it ran in
  TimerHandle deadline;

 private:
  TokenEvent Judge(uint32_t position);  // Accept without the append

  const SequenceId id_;
  const SequenceMode mode_;
  const SamplingParams sampling_;
  const uint32_t max_tokens_;
  const uint32_t context_length_;
  const uint32_t prompt_length_;
  const LogprobParams logprobs_;
  const bool scores_prompt_;
  const Time admitted_at_;
  std::vector<TokenId> tokens_;  // prompt, then sampled
  kv::BlockTable table_;
  StopMatcher stop_;
  sampling::LogitEditor editor_;
  bool held_ = false;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_SEQUENCE_H_
