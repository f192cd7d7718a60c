#include "text/vocab.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/hash.h"
#include "common/status_macros.h"
#include "text/byte_alphabet.h"

namespace baton {
namespace {

constexpr uint8_t kControlFlag = 1;
constexpr uint8_t kEndFlag = 2;
constexpr size_t kMaxVocabTokens = 4 << 20;

bool IsControlType(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

// Bytes of one token as the reference decodes it: a token that is not written in the byte alphabet
// stands for its own text.
std::string TokenBytes(const std::string& token, TokenType type) {
  if (IsControlType(type)) return "";
  if (type == TokenType::kUserDefined) return token;
  return BytesFromAlphabet(token).value_or(token);
}

absl::Status CheckShape(const VocabData& data) {
  if (data.model != "gpt2") {
    return absl::InvalidArgumentError("tokenizer.ggml.model is '" + data.model +
                                      "'; only 'gpt2' (byte-level BPE) is supported");
  }
  if (data.tokens.empty()) return absl::InvalidArgumentError("tokenizer.ggml.tokens is empty");
  if (data.tokens.size() > kMaxVocabTokens) {
    return absl::InvalidArgumentError("tokenizer.ggml.tokens has more than " +
                                      std::to_string(kMaxVocabTokens) + " entries");
  }
  if (data.types.size() != data.tokens.size()) {
    return absl::InvalidArgumentError("tokenizer.ggml.token_type has " +
                                      std::to_string(data.types.size()) + " entries for " +
                                      std::to_string(data.tokens.size()) + " tokens");
  }
  for (const TokenId end : data.end_tokens) {
    if (end >= 0 && static_cast<size_t>(end) < data.tokens.size()) continue;
    return absl::InvalidArgumentError("end token " + std::to_string(end) +
                                      " is outside the vocabulary");
  }
  return absl::OkStatus();
}

void AppendUint32(uint32_t value, std::string* out) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(value >> shift));
}

}  // namespace

absl::StatusOr<Vocab> Vocab::Create(const VocabData& data) {
  BATON_RETURN_IF_ERROR(CheckShape(data));
  Vocab vocab;
  vocab.end_tokens_ = data.end_tokens;
  std::sort(vocab.end_tokens_.begin(), vocab.end_tokens_.end());
  vocab.end_tokens_.erase(std::unique(vocab.end_tokens_.begin(), vocab.end_tokens_.end()),
                          vocab.end_tokens_.end());

  std::string description = "baton vocabulary 1";
  vocab.offsets_.push_back(0);
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const std::string bytes = TokenBytes(data.tokens[i], data.types[i]);
    const bool ends = std::binary_search(vocab.end_tokens_.begin(), vocab.end_tokens_.end(),
                                         static_cast<TokenId>(i));
    const auto flags = static_cast<uint8_t>((IsControlType(data.types[i]) ? kControlFlag : 0) |
                                            (ends ? kEndFlag : 0));
    vocab.bytes_ += bytes;
    if (vocab.bytes_.size() > std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError("tokenizer.ggml.tokens is longer than 4 GiB");
    }
    vocab.offsets_.push_back(static_cast<uint32_t>(vocab.bytes_.size()));
    vocab.flags_.push_back(flags);
    vocab.max_token_bytes_ = std::max(vocab.max_token_bytes_, bytes.size());
    AppendUint32(static_cast<uint32_t>(bytes.size()), &description);
    description.push_back(static_cast<char>(flags));
    description += bytes;
  }
  vocab.hash_ = HashBytes(description);
  return vocab;
}

std::string_view Vocab::Bytes(TokenId token) const {
  BATON_CHECK(Contains(token));
  const auto i = static_cast<size_t>(token);
  return std::string_view(bytes_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

bool Vocab::IsControl(TokenId token) const {
  BATON_CHECK(Contains(token));
  return (flags_[static_cast<size_t>(token)] & kControlFlag) != 0;
}

bool Vocab::IsEnd(TokenId token) const {
  BATON_CHECK(Contains(token));
  return (flags_[static_cast<size_t>(token)] & kEndFlag) != 0;
}

}  // namespace baton
