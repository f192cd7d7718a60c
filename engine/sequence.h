// One request in the engine: first its prompt, which is computed once, then its choices, which
// share the prompt's blocks and end one by one. In either phase it may give all its blocks up; it
// goes on where it was once it has blocks again and has computed what they held.
#ifndef BATON_ENGINE_SEQUENCE_H_
#define BATON_ENGINE_SEQUENCE_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "common/executor.h"
#include "engine/choice.h"
#include "engine/model_runner.h"
#include "kv/block.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/prefix_cache.h"
#include "kv/sliding_windows.h"
#include "text/vocab.h"

namespace baton::engine {

enum class SequenceMode {
  kGenerate,     // until every choice has ended
  kPrefillOnly,  // samples one token of each choice, then keeps its blocks until removed
};

// Where a sequence takes blocks when it goes on; `spare` of each group are left free.
struct BlockSource {
  kv::BlockPool& pool;
  const kv::SlidingWindows& windows;
  kv::PrefixCache* cache = nullptr;  // over `pool`
  uint32_t spare = 0;
};

// Owner: the engine.
class Sequence {
 public:
  // `blocks` holds what is filled of the prompt, in the cache up to `chain`.
  Sequence(SequenceId id, SequenceMode mode, const DecoderState& state, Time admitted_at,
           kv::BlockTable blocks, kv::CacheChain chain, const Vocab& vocab,
           uint32_t context_length);

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
  std::vector<TokenId> Chunk(const Choice& choice, uint32_t length) const;
  // The prompt's tokens that follow those of Chunk(length), when they are to be scored here.
  std::vector<TokenId> Scored(uint32_t length) const;
  // Of what a step scored from `position` on: those that were not scored before; they are now.
  std::vector<TokenLogprobs> TakeScored(uint32_t position, std::vector<TokenLogprobs> scored);
  // Of the choices that have no token yet: the prompt's last row makes their first ones.
  std::vector<ChoiceSample> FirstSamples() const;

  // The whole prompt is in the blocks and every choice has a token. kGenerate: those that go on get
  // their blocks; else it only keeps the prompt's from now on.
  void CompletePrompt();
  bool held() const { return phase_ == Phase::kHeld; }
  // Choices that may come to need more blocks than they hold.
  uint32_t growing() const;
  // Tokens to be run before every choice that goes on can sample.
  uint64_t backlog() const;

  // It holds no blocks, as if nothing had been computed; the cache has its full blocks already. Not
  // of a kPrefillOnly one, whose blocks are being shipped.
  void GiveWay();
  bool preempted() const { return phase_ == Phase::kPreempted; }
  // Takes blocks for its prompt and what each choice has sampled, with a block of growth for each,
  // or none: false. What the cache still holds of it is not computed again.
  bool Resume(const BlockSource& from);
  // After Resume: tokens that were computed when it gave way and are not any more.
  uint64_t to_recompute() const { return std::max(backlog(), backlog_then_) - backlog_then_; }

  // Gives the cache the full blocks that it has not seen yet: of the prompt, or of a choice after
  // the fork.
  void StoreFullBlocks(kv::PrefixCache& cache);
  void StoreFullBlocks(kv::PrefixCache& cache, Choice& choice);
  // To be done before any choice writes: not empty for the first step after the fork alone.
  std::vector<kv::BlockCopy> TakeCopies() { return std::exchange(copies_, {}); }

  bool started = false;  // in the batch
  TimerHandle deadline;

 private:
  enum class Phase : uint8_t { kPrompt, kHeld, kForked, kPreempted };
  void Fork();
  std::vector<Choice*> Live();
  TokenId TokenAt(const Choice& choice, uint32_t position) const;
  std::vector<TokenId> TokensOf(const Choice& choice) const;
  bool sampled_everywhere() const;
  bool scoring() const { return scores_prompt_ && scored_ + 1 < prompt_.size(); }
  bool PromptIsThere(const kv::PrefixCache* cache) const;
  bool ResumePrompt(const BlockSource& from);
  bool ResumeChoices(const BlockSource& from);

  const SequenceId id_;
  const SequenceMode mode_;
  const SamplingParams sampling_;
  const LogprobParams logprobs_;
  const bool scores_prompt_;
  const Time admitted_at_;
  const std::vector<TokenId> prompt_;
  const uint32_t block_size_;
  const std::string cache_namespace_;  // empty: nothing of it is stored or found
  Phase phase_ = Phase::kPrompt;
  uint32_t scored_ = 0;        // log probabilities told of the prompt, from position 1 on
  uint64_t backlog_then_ = 0;  // when it gave way
  uint32_t parts_;             // choices that the blocks have parts for (kv/block_fork.h)
  kv::BlockTable blocks_;      // until the fork
  kv::CacheChain chain_;       // likewise
  std::vector<Choice> choices_;
  std::vector<kv::BlockCopy> copies_;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_SEQUENCE_H_
