#include "text/detokenizer.h"

#include <string>

#include "common/status_macros.h"

namespace baton {
namespace {

absl::Status OutsideVocabulary(TokenId token, const Vocab& vocab) {
  return absl::InvalidArgumentError("token id " + std::to_string(token) +
                                    " is outside the vocabulary of " +
                                    std::to_string(vocab.size()) + " tokens");
}

}  // namespace

absl::Status Detokenizer::Add(TokenId token) {
  if (!vocab_.Contains(token)) return OutsideVocabulary(token, vocab_);
  hidden_ += vocab_.Bytes(token);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Detokenizer::Show(uint64_t visible_bytes) {
  if (visible_bytes < shown_bytes_ || visible_bytes > raw_bytes()) {
    return absl::InvalidArgumentError("visible_bytes is " + std::to_string(visible_bytes) +
                                      ", outside [" + std::to_string(shown_bytes_) + ", " +
                                      std::to_string(raw_bytes()) + "]");
  }
  const auto fresh = static_cast<size_t>(visible_bytes - shown_bytes_);
  std::string text;
  decoder_.Append(std::string_view(hidden_).substr(0, fresh), &text);
  hidden_.erase(0, fresh);
  shown_bytes_ = visible_bytes;
  return text;
}

absl::StatusOr<std::string> Detokenizer::ShowLast(uint64_t visible_bytes) {
  BATON_ASSIGN_OR_RETURN(std::string text, Show(visible_bytes));
  decoder_.Finish(&text);
  return text;
}

absl::StatusOr<std::string> DecodeTokens(const Vocab& vocab, std::span<const TokenId> tokens) {
  std::string bytes;
  for (const TokenId token : tokens) {
    if (!vocab.Contains(token)) return OutsideVocabulary(token, vocab);
    bytes += vocab.Bytes(token);
  }
  return DecodeUtf8Lossy(bytes);
}

}  // namespace baton
