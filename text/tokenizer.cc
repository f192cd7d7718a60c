#include "text/tokenizer.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/special_tokens.h"
#include "text/utf8.h"

namespace baton {
namespace {

// The text from where a token begins, and how much of it the template itself wrote.
struct Span {
  size_t end;
  bool trusted;
};

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(const VocabData& data, PreTokenizer pre_tokenizer, BpeModel model)
      : pre_tokenizer_(std::move(pre_tokenizer)),
        model_(std::move(model)),
        special_tokens_(data),
        start_token_(data.add_bos ? data.bos : kNoToken) {}

  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                              SpecialTokenMode mode) const override {
    const std::vector<Span> spans = {{text.size(), mode == SpecialTokenMode::kAsTokens}};
    return EncodeSpans(text, spans);
  }

  absl::StatusOr<std::vector<TokenId>> EncodeSegments(
      std::span<const TextSegment> segments) const override;

  std::vector<TokenId> WithStartToken(std::vector<TokenId> ids) const override {
    if (start_token_ == kNoToken || (!ids.empty() && ids.front() == start_token_)) return ids;
    ids.insert(ids.begin(), start_token_);
    return ids;
  }

 private:
  absl::StatusOr<std::vector<TokenId>> EncodeSpans(std::string_view text,
                                                   std::span<const Span> spans) const;
  absl::Status EncodeOrdinary(std::string_view text, BpeMerger* merger,
                              std::vector<TokenId>* ids) const;

  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  SpecialTokens special_tokens_;
  TokenId start_token_;
};

absl::StatusOr<std::vector<TokenId>> BpeTokenizer::EncodeSegments(
    std::span<const TextSegment> segments) const {
  std::string text;
  std::vector<Span> spans;
  for (const TextSegment& segment : segments) {
    text += segment.text;
    const bool trusted = !segment.from_user;
    if (!spans.empty() && spans.back().trusted == trusted) spans.pop_back();
    spans.push_back({text.size(), trusted});
  }
  return EncodeSpans(text, spans);
}

absl::StatusOr<std::vector<TokenId>> BpeTokenizer::EncodeSpans(std::string_view text,
                                                               std::span<const Span> spans) const {
  if (!IsValidUtf8(text)) return absl::InvalidArgumentError("text is not valid UTF-8");
  std::vector<TokenId> ids;
  BpeMerger merger(model_);
  size_t span = 0;
  size_t ordinary = 0;  // where the text not encoded yet begins
  for (size_t at = 0; at < text.size();) {
    while (spans[span].end <= at) ++span;
    const size_t trusted = spans[span].trusted ? spans[span].end - at : 0;
    const SpecialTokens::Match match = special_tokens_.Longest(text.substr(at), trusted);
    if (match.token == kNoToken) {
      ++at;
      continue;
    }
    BATON_RETURN_IF_ERROR(EncodeOrdinary(text.substr(ordinary, at - ordinary), &merger, &ids));
    ids.push_back(match.token);
    at += match.length;
    ordinary = at;
  }
  BATON_RETURN_IF_ERROR(EncodeOrdinary(text.substr(ordinary), &merger, &ids));
  return ids;
}

absl::Status BpeTokenizer::EncodeOrdinary(std::string_view text, BpeMerger* merger,
                                          std::vector<TokenId>* ids) const {
  BATON_ASSIGN_OR_RETURN(const std::vector<std::string_view> pieces, pre_tokenizer_.Split(text));
  for (const std::string_view piece : pieces) merger->Encode(piece, ids);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Create(const VocabData& data) {
  if (data.types.size() != data.tokens.size()) {
    return absl::InvalidArgumentError("tokenizer.ggml.token_type does not fit the tokens");
  }
  if (data.add_bos && data.bos == kNoToken) {
    return absl::InvalidArgumentError(
        "tokenizer.ggml.add_bos_token is set and tokenizer.ggml.bos_token_id is missing");
  }
  BATON_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Create(data.pre_tokenizer));
  BATON_ASSIGN_OR_RETURN(BpeModel model, BpeModel::Create(data));
  return std::make_unique<BpeTokenizer>(data, std::move(pre_tokenizer), std::move(model));
}

}  // namespace baton
