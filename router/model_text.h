// What the router knows of the model: vocabulary, tokenizer, chat template, context. Read from a
// GGUF, which need not contain tensors.
#ifndef BATON_ROUTER_MODEL_TEXT_H_
#define BATON_ROUTER_MODEL_TEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "text/template.h"
#include "text/text_segment.h"
#include "text/tokenizer.h"
#include "text/vocab.h"
#include "text/vocab_data.h"

namespace baton::router {

// One part of a raw prompt: text or token ids.
struct PromptPart {
  std::string text;
  std::vector<TokenId> ids;
  bool is_text = true;
};

// Exactly one of the two is used.
struct PromptInput {
  std::vector<PromptPart> parts;
  std::vector<ChatMessage> messages;
  bool is_chat = false;
  std::string path;  // of the field, for errors
};

// Immutable: any thread may use it.
class ModelText {
 public:
  // Errors name the file.
  static absl::StatusOr<std::unique_ptr<ModelText>> Load(const std::string& path);
  // From parts, for tests.
  static absl::StatusOr<std::unique_ptr<ModelText>> Create(std::string name, uint32_t context,
                                                           const VocabData& data);

  const std::string& name() const { return name_; }
  uint32_t context_length() const { return context_length_; }
  const Vocab& vocab() const { return vocab_; }
  bool can_chat() const { return template_.has_value(); }

  // Slow for long prompts: belongs on a pool. INVALID_ARGUMENT, or FAILED_PRECONDITION for chat on
  // a model whose template cannot be rendered.
  absl::StatusOr<std::vector<TokenId>> Encode(const PromptInput& input, int64_t now_unix_s) const;

 private:
  ModelText(std::string name, uint32_t context, Vocab vocab,
            std::unique_ptr<const Tokenizer> tokenizer);
  absl::StatusOr<std::vector<TokenId>> EncodeChat(const PromptInput& input,
                                                  int64_t now_unix_s) const;

  const std::string name_;
  const uint32_t context_length_;
  const Vocab vocab_;
  const std::unique_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  absl::Status template_status_;  // why there is no template
};

}  // namespace baton::router

#endif  // BATON_ROUTER_MODEL_TEXT_H_
