// Renders a model's own chat template: a bounded subset of Jinja.
#ifndef BATON_TEXT_TEMPLATE_H_
#define BATON_TEXT_TEMPLATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/text_segment.h"
#include "text/vocab_data.h"

namespace baton {

struct ChatMessage {
  std::string role;
  std::string content;
};

struct ChatInput {
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
  int64_t now_unix_s = 0;  // for templates that write today's date
};

struct TemplateOptions {
  std::string bos_token;  // text of the special tokens, for templates that name them
  std::string eos_token;
  size_t max_source_bytes = 1 << 20;
  size_t max_output_bytes = 64 << 20;  // also of any string on the way
  uint64_t max_steps = 10'000'000;     // evaluated nodes, and 64 bytes of text each
};

// With the texts of the model's own start and end tokens.
TemplateOptions TemplateOptionsFor(const VocabData& data);

namespace jinja {
struct Program;
class Value;
}  // namespace jinja

// Immutable; any number of threads may render at once.
class ChatTemplate {
 public:
  // FAILED_PRECONDITION naming the construct and its line when the template needs something the
  // subset does not have: the model still takes raw prompts.
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source, TemplateOptions options);

  // INVALID_ARGUMENT with the template's own words when it rejects the conversation
  // (raise_exception), without messages, and when a limit of TemplateOptions is passed;
  // FAILED_PRECONDITION when it cannot be rendered for another reason.
  absl::StatusOr<std::vector<TextSegment>> Render(const ChatInput& input) const;

  // With any variables (tools, documents); `variables` is a mapping. bos_token and eos_token are
  // added from the options.
  absl::StatusOr<std::vector<TextSegment>> RenderVariables(const jinja::Value& variables,
                                                           int64_t now_unix_s) const;

 private:
  ChatTemplate(std::shared_ptr<const jinja::Program> program, TemplateOptions options);

  std::shared_ptr<const jinja::Program> program_;
  TemplateOptions options_;
};

}  // namespace baton

#endif  // BATON_TEXT_TEMPLATE_H_
