// The vocabulary as workers need it: which bytes a token stands for and which tokens end a choice.
#ifndef BATON_TEXT_VOCAB_H_
#define BATON_TEXT_VOCAB_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "common/ids.h"
#include "text/vocab_data.h"

namespace baton {

// Immutable, so any thread may read it.
class Vocab {
 public:
  // INVALID_ARGUMENT when the data contradicts itself or is of a kind that is not byte-level BPE.
  static absl::StatusOr<Vocab> Create(const VocabData& data);

  int32_t size() const { return static_cast<int32_t>(flags_.size()); }
  bool Contains(TokenId token) const { return token >= 0 && token < size(); }

  // The functions below require Contains(token).
  // Raw bytes the token contributes to a choice's text; none for control tokens. A token may hold
  // part of a UTF-8 character.
  std::string_view Bytes(TokenId token) const;
  // Control tokens and the unknown token: never part of the text.
  bool IsControl(TokenId token) const;
  // Ends a choice unless it ignores end tokens.
  bool IsEnd(TokenId token) const;

  std::span<const TokenId> end_tokens() const { return end_tokens_; }
  // Longest Bytes() of any token, at least 1: a text of n bytes is at least n / max_token_bytes()
  // tokens long (control tokens in it aside).
  size_t max_token_bytes() const { return max_token_bytes_; }
  // `vocab_hash` on the wire: equal exactly when two processes agree on size, bytes, control tokens
  // and end tokens.
  Digest hash() const { return hash_; }

 private:
  Vocab() = default;

  std::string bytes_;              // of all tokens, one after the other
  std::vector<uint32_t> offsets_;  // size() + 1
  std::vector<uint8_t> flags_;
  std::vector<TokenId> end_tokens_;  // ascending, unique
  size_t max_token_bytes_ = 1;
  Digest hash_;
};

}  // namespace baton

#endif  // BATON_TEXT_VOCAB_H_
