#include "router/model_text.h"

#include <utility>

#include "common/status_macros.h"
#include "gguf/gguf_reader.h"
#include "router/error_reasons.h"
#include "router/status_details.h"
#include "text/vocab_from_gguf.h"

namespace baton::router {
namespace {

std::string TokenText(const VocabData& data, TokenId id) {
  return id >= 0 && static_cast<size_t>(id) < data.tokens.size() ? data.tokens[id] : "";
}

// "/models/tiny.gguf" -> "tiny"
std::string Stem(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string file = slash == std::string::npos ? path : path.substr(slash + 1);
  return file.size() > 5 && file.ends_with(".gguf") ? file.substr(0, file.size() - 5) : file;
}

}  // namespace

ModelText::ModelText(std::string name, uint32_t context, Vocab vocab,
                     std::unique_ptr<const Tokenizer> tokenizer)
    : name_(std::move(name)),
      context_length_(context),
      vocab_(std::move(vocab)),
      tokenizer_(std::move(tokenizer)) {}

absl::StatusOr<std::unique_ptr<ModelText>> ModelText::Load(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const auto gguf, GgufReader::Open(path));
  BATON_ASSIGN_OR_RETURN(const auto architecture, gguf->GetString("general.architecture"));
  const std::string key = std::string(architecture) + ".context_length";
  BATON_ASSIGN_OR_RETURN(const uint32_t context, gguf->GetUint32(key));
  if (context < 2) {
    return absl::InvalidArgumentError(path + ": key '" + key + "' is " + std::to_string(context) +
                                      "; must be at least 2");
  }
  BATON_ASSIGN_OR_RETURN(const VocabData data, VocabDataFromGguf(*gguf));
  const auto name = gguf->GetString("general.name");
  return Create(name.ok() && !name->empty() ? std::string(*name) : Stem(path), context, data);
}

absl::StatusOr<std::unique_ptr<ModelText>> ModelText::Create(std::string name, uint32_t context,
                                                             const VocabData& data) {
  BATON_ASSIGN_OR_RETURN(Vocab vocab, Vocab::Create(data));
  BATON_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Create(data));
  std::unique_ptr<ModelText> model(
      new ModelText(std::move(name), context, std::move(vocab), std::move(tokenizer)));
  if (data.chat_template.empty()) {
    model->template_status_ = absl::FailedPreconditionError("the model has no chat template");
    return model;
  }
  TemplateOptions options;
  options.bos_token = TokenText(data, data.bos);
  options.eos_token = TokenText(data, data.eos);
  auto parsed = ChatTemplate::Parse(data.chat_template, std::move(options));
  if (parsed.ok()) {
    model->template_.emplace(*std::move(parsed));
  } else {
    model->template_status_ = parsed.status();
  }
  return model;
}

absl::StatusOr<std::vector<TokenId>> ModelText::Encode(const PromptInput& input,
                                                       int64_t now_unix_s) const {
  if (input.is_chat) return EncodeChat(input, now_unix_s);
  std::vector<TokenId> ids;
  for (const PromptPart& part : input.parts) {
    if (!part.is_text) {
      ids.insert(ids.end(), part.ids.begin(), part.ids.end());
      continue;
    }
    const auto encoded = tokenizer_->Encode(part.text, SpecialTokenMode::kAsText);
    if (!encoded.ok()) return BadField(input.path, std::string(encoded.status().message()));
    ids.insert(ids.end(), encoded->begin(), encoded->end());
  }
  // Whoever sends ids says exactly what the model sees.
  const bool starts_with_text = !input.parts.empty() && input.parts[0].is_text;
  if (!starts_with_text || ids.empty()) return ids;
  return tokenizer_->WithStartToken(std::move(ids));
}

absl::StatusOr<std::vector<TokenId>> ModelText::EncodeChat(const PromptInput& input,
                                                           int64_t now_unix_s) const {
  if (!template_.has_value()) {
    return ErrorWithReason(absl::StatusCode::kFailedPrecondition,
                           "chat is not possible: " + std::string(template_status_.message()),
                           kReasonChatTemplate);
  }
  ChatInput chat;
  chat.messages = input.messages;
  chat.now_unix_s = now_unix_s;
  const auto segments = template_->Render(chat);
  if (!segments.ok()) {
    const std::string why(segments.status().message());
    if (segments.status().code() == absl::StatusCode::kInvalidArgument) {
      return BadField(input.path, why);
    }
    return ErrorWithReason(segments.status().code(), why, kReasonChatTemplate);
  }
  BATON_ASSIGN_OR_RETURN(auto ids, tokenizer_->EncodeSegments(*segments));
  return tokenizer_->WithStartToken(std::move(ids));
}

}  // namespace baton::router
