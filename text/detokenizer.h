// Token ids to text, as the router shows it.
#ifndef BATON_TEXT_DETOKENIZER_H_
#define BATON_TEXT_DETOKENIZER_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "text/utf8.h"
#include "text/vocab.h"

namespace baton {

// One per choice. What it returns is always valid UTF-8: invalid sequences become U+FFFD
// (text/utf8.h says how many), an incomplete character waits for its rest. The pieces joined are
// the one-shot decoding of the visible raw bytes, however tokens and calls were grouped.
// Not thread-safe. `vocab` must outlive it.
class Detokenizer {
 public:
  explicit Detokenizer(const Vocab& vocab) : vocab_(vocab) {}

  // The next token of the choice. INVALID_ARGUMENT for an id outside the vocabulary.
  absl::Status Add(TokenId token);

  // New text up to `visible_bytes` of the raw bytes, a number from the worker (text/stop.h).
  // INVALID_ARGUMENT when it falls or lies beyond the tokens added.
  absl::StatusOr<std::string> Show(uint64_t visible_bytes);
  // The same for the last event: also ends the text, so an incomplete character becomes U+FFFD.
  absl::StatusOr<std::string> ShowLast(uint64_t visible_bytes);

  uint64_t raw_bytes() const { return shown_bytes_ + hidden_.size(); }

 private:
  const Vocab& vocab_;
  Utf8Decoder decoder_;
  std::string hidden_;  // raw bytes beyond the visible ones
  uint64_t shown_bytes_ = 0;
};

// All of `tokens` at once; control tokens contribute nothing. INVALID_ARGUMENT for an id outside
// the vocabulary.
absl::StatusOr<std::string> DecodeTokens(const Vocab& vocab, std::span<const TokenId> tokens);

}  // namespace baton

#endif  // BATON_TEXT_DETOKENIZER_H_
