// One choice of a sequence: what it sampled, how much of it is in its KV blocks, and whether it
// ends.
#ifndef BATON_ENGINE_CHOICE_H_
#define BATON_ENGINE_CHOICE_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "engine/model_runner.h"
#include "kv/block_table.h"
#include "kv/prefix_cache.h"
#include "sampling/logit_edits.h"
#include "text/stop.h"

namespace baton::engine {

enum class FinishReason { kNone, kStop, kLength };

struct TokenEvent {
  SequenceId sequence = 0;
  uint32_t choice = 0;
  uint32_t position = 0;  // absolute: prompt length + index
  TokenId token = 0;
  uint64_t visible_bytes = 0;
  FinishReason finish_reason = FinishReason::kNone;      // of the choice
  std::optional<TokenLogprobs> logprobs = std::nullopt;  // when asked for
  bool last = false;                                     // no choice of the sequence goes on
  bool operator==(const TokenEvent&) const = default;
};

// Owner: its sequence.
class Choice {
 public:
  struct Place {
    SequenceId sequence = 0;
    uint32_t index = 0;
    uint32_t prompt_length = 0;
    uint32_t max_tokens = 0;
    uint32_t context_length = 0;
  };
  // `stop` and `editor` have seen the prompt alone.
  Choice(const Place& place, StopMatcher stop, sampling::LogitEditor editor);

  uint32_t index() const { return place_.index; }
  uint32_t sampled() const { return static_cast<uint32_t>(tokens_.size()); }
  bool finished() const { return finished_; }

  // Appends a sampled token and decides whether it is the last; then its blocks are given back.
  TokenEvent Accept(TokenId token, std::optional<TokenLogprobs> logprobs);
  // Appends the tokens that the choice came with; call it once, first. INVALID_ARGUMENT when they
  // go on after an end, or do not end although they are said to.
  absl::StatusOr<std::vector<TokenEvent>> Replay(const ChoiceState& came);
  // What its next token is sampled with.
  ChoiceSample NextSample() const { return {index(), editor_.Edits(stop_.ForbiddenNext())}; }

  // From the fork on. In the cache up to `chain`.
  void Start(kv::BlockTable table, kv::CacheChain chain) {
    table_ = std::move(table);
    chain_ = std::move(chain);
  }
  kv::BlockTable& table() { return table_; }
  kv::CacheChain& chain() { return chain_; }
  TokenId TokenAt(uint32_t position) const { return tokens_[position - place_.prompt_length]; }
  // Slots that its next token reads, and those it takes at once when it begins or goes on: a block
  // more, as far as it may grow.
  uint32_t slots_now() const { return place_.prompt_length + sampled(); }
  uint32_t slots_at_first(uint32_t block_size) const;
  uint64_t slots() const { return table_.slots(); }  // that it has
  bool has_room() const { return slots() >= slots_now(); }
  // The most that it may come to need: the last token never enters the cache.
  uint32_t most_slots() const;
  // Tokens [computed(), prompt + sampled) are not in the blocks yet.
  uint32_t computed() const { return table_.filled(); }
  uint32_t pending() const { return place_.prompt_length + sampled() - computed(); }
  // Next: the one token that was just sampled.
  bool decoding() const { return pending() <= 1; }

  StepId last_step = 0;  // it, or its prompt, ran in

 private:
  const Place place_;
  std::vector<TokenId> tokens_;  // sampled
  StopMatcher stop_;
  sampling::LogitEditor editor_;
  kv::BlockTable table_;
  kv::CacheChain chain_;
  bool finished_ = false;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_CHOICE_H_
