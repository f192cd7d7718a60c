// Decides, token by token, whether a choice ends and how much of its text may be shown. Used by
// the worker that samples (DESIGN section 1).
#ifndef BATON_TEXT_STOP_H_
#define BATON_TEXT_STOP_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/decoder_state.h"
#include "text/utf8.h"
#include "text/vocab.h"

namespace baton {

// INVALID_ARGUMENT naming the field and the limit. Routers call it for clients, workers for peers.
absl::Status ValidateStopParams(const StopParams& stop, int32_t vocab_size);

enum class StopReason {
  kNone,        // goes on
  kEndToken,    // a token of the model that ends a generation
  kStopToken,   // one of the request's stop_token_ids
  kStopString,  // one of the request's stop_strings, over the raw bytes
};

// One per choice; a function of the tokens alone, so a worker that takes a choice over replays
// them. Call order: Accept per sampled token until one ends the choice, or Finish when the choice
// ends for another reason (length, context). Not thread-safe. `vocab` must outlive it.
class StopMatcher {
 public:
  // `stop` has passed ValidateStopParams.
  StopMatcher(const Vocab& vocab, const StopParams& stop);

  // While fewer than min_tokens tokens were accepted nothing ends the choice by its id, and no stop
  // string does before the last of them.
  StopReason Accept(TokenId token);
  // Ids that may not be sampled next, because min_tokens forbids an end. Any order.
  std::vector<TokenId> ForbiddenNext() const;
  // The choice ends here without a stop: everything becomes visible.
  void Finish();

  // Length of the prefix of the raw bytes (vocabulary bytes of every accepted token) that may be
  // shown. Never falls. While the choice runs it leaves out whatever may become part of a stop
  // string and stops at a UTF-8 boundary; after the end it is exact: it leaves out the token that
  // ended the choice by its id, or the matched stop string, unless include_stop keeps them, and
  // what follows the string in any case.
  uint64_t visible_bytes() const { return visible_bytes_; }
  bool ended() const { return ended_; }

  // Comparisons of bytes made so far; tests hold them linear in the bytes fed.
  uint64_t steps() const { return steps_; }

 private:
  // Knuth-Morris-Pratt over one stop string.
  struct Pattern {
    std::string bytes;
    std::vector<uint16_t> fallback;
    size_t matched = 0;
  };
  bool StopsById(TokenId token) const;
  // Returns the length of the longest stop string that ends with `byte`, 0 if none does.
  size_t Advance(uint8_t byte);
  size_t LongestPartial() const;
  void End(uint64_t visible_bytes);
  void ShowSettledBytes();

  const Vocab& vocab_;
  bool ignore_end_tokens_;
  bool include_stop_;
  uint32_t min_tokens_;
  uint32_t accepted_ = 0;
  std::vector<TokenId> stop_tokens_;
  std::vector<Pattern> patterns_;
  std::string held_;      // raw bytes the boundary scan has not passed yet
  Utf8Scanner boundary_;  // over the bytes before held_
  uint64_t raw_bytes_ = 0;
  uint64_t visible_bytes_ = 0;
  uint64_t steps_ = 0;
  bool ended_ = false;
};

}  // namespace baton

#endif  // BATON_TEXT_STOP_H_
