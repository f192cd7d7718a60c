// One request in the engine: first its prompt, which is computed once, then its choices, which
// share the prompt's blocks and end one by one.
#ifndef BATON_ENGINE_SEQUENCE_H_
#define BATON_ENGINE_SEQUENCE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "common/executor.h"
#include "engine/choice.h"
#include "engine/model_runner.h"
#include "kv/block.h"
#include "kv/block_table.h"
#include "text/vocab.h"

namespace baton::engine {

enum class SequenceMode {
  kGenerate,     // until every choice has ended
  kPrefillOnly,  // samples one token of each choice, then keeps its blocks until removed
};

// Owner: the engine.
class Sequence {
 public:
  // `blocks` holds what is filled of the prompt.
  Sequence(SequenceId id, SequenceMode mode, const DecoderState& state, Time admitted_at,
           kv::BlockTable blocks, const Vocab& vocab, uint32_t context_length);

  SequenceId id() const { return id_; }
  SequenceMode mode() const { return mode_; }
  Time admitted_at() const { return admitted_at_; }
  const SamplingParams& sampling() const { return sampling_; }
  const LogprobParams& logprobs() const { return logprobs_; }
  std::vector<Choice>& choices() { return choices_; }
  const std::vector<Choice>& choices() const { return choices_; }
  bool over() const;  // no choice goes on

  // Events of the tokens that the choices came with, one choice after the other; call it once,
  // first. Errors of Choice::Replay.
  absl::StatusOr<std::vector<TokenEvent>> Replay(const std::vector<ChoiceState>& came);

  // Until CompletePrompt. Tokens [computed(), prompt) are not in the blocks yet.
  bool in_prompt() const { return phase_ == Phase::kPrompt; }
  kv::BlockTable& blocks() { return blocks_; }
  uint32_t computed() const { return blocks_.filled(); }
  uint32_t pending() const { return static_cast<uint32_t>(prompt_.size()) - computed(); }
  std::vector<TokenId> Chunk(uint32_t length) const;
  // The prompt's tokens that follow those of Chunk(length), when they are to be scored here.
  std::vector<TokenId> Scored(uint32_t length) const;
  // Of the choices that have no token yet: the prompt's last row makes their first ones.
  std::vector<ChoiceSample> FirstSamples() const;

  // The whole prompt is in the blocks and every choice has a token. kGenerate: those that go on get
  // their blocks; else it only keeps the prompt's from now on.
  void CompletePrompt();
  bool held() const { return phase_ == Phase::kHeld; }
  // To be done before any choice writes: not empty for the first step after the fork alone.
  std::vector<kv::BlockCopy> TakeCopies() { return std::exchange(copies_, {}); }

  bool started = false;  // in the batch
  TimerHandle deadline;

 private:
  enum class Phase : uint8_t { kPrompt, kHeld, kForked };
  void Fork();

  const SequenceId id_;
  const SequenceMode mode_;
  const SamplingParams sampling_;
  const LogprobParams logprobs_;
  const bool scores_prompt_;
  const Time admitted_at_;
  const std::vector<TokenId> prompt_;
  Phase phase_ = Phase::kPrompt;
  kv::BlockTable blocks_;  // until the fork
  std::vector<Choice> choices_;
  std::vector<kv::BlockCopy> copies_;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_SEQUENCE_H_
