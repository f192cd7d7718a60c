// Text to token ids: byte-level BPE (byte alphabet of GPT-2, merges by rank) behind a
// pre-tokenizer named by the model file.
#ifndef BATON_TEXT_TOKENIZER_H_
#define BATON_TEXT_TOKENIZER_H_

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "text/text_segment.h"
#include "text/vocab_data.h"

namespace baton {

enum class SpecialTokenMode {
  kAsText,    // "<|im_end|>" in the text is nine ordinary characters and more
  kAsTokens,  // it is the control token
};

// Immutable; any number of threads may encode at once. Work and memory are linear in the text
// (times a logarithm inside one pre-token), nothing recurses: safe on text nobody has looked at,
// but long texts belong on a pool, not in a core.
class Tokenizer {
 public:
  // INVALID_ARGUMENT when the pre-tokenizer is missing or unknown (never a silent default), or
  // when tokens and merges contradict each other.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Create(const VocabData& data);
  virtual ~Tokenizer() = default;

  // Adds no start token. INVALID_ARGUMENT when `text` is not valid UTF-8.
  virtual absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                                      SpecialTokenMode mode) const = 0;

  // Encodes the concatenation; special tokens are recognised only where their whole text lies in
  // segments that are not from_user. Ordinary text is split as if there were no segments, which is
  // what the reference does with a rendered template. Adds no start token.
  virtual absl::StatusOr<std::vector<TokenId>> EncodeSegments(
      std::span<const TextSegment> segments) const = 0;

  // Puts the start token in front if the model wants one and `ids` does not begin with it (some
  // templates write it themselves).
  virtual std::vector<TokenId> WithStartToken(std::vector<TokenId> ids) const = 0;
};

}  // namespace baton

#endif  // BATON_TEXT_TOKENIZER_H_
