#include "text/template.h"

#include <utility>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja/value.h"
#include "text/utf8.h"

namespace baton {
namespace {

using jinja::Text;
using jinja::Value;

void Define(std::string_view name, Value value, jinja::Map* variables) {
  variables->emplace_back(Text(std::string(name), false), std::move(value));
}

Value MessageValue(const ChatMessage& message) {
  jinja::Map map;
  Define("role", Value::FromUser(message.role), &map);
  Define("content", Value::FromUser(message.content), &map);
  return Value(std::move(map));
}

absl::Status CheckMessages(const std::vector<ChatMessage>& messages) {
  if (messages.empty()) return absl::InvalidArgumentError("messages is empty");
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool role_valid = IsValidUtf8(messages[i].role);
    if (role_valid && IsValidUtf8(messages[i].content)) continue;
    return absl::InvalidArgumentError("messages[" + std::to_string(i) + "]." +
                                      (role_valid ? "content" : "role") + " is not valid UTF-8");
  }
  return absl::OkStatus();
}

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const jinja::Program> program, TemplateOptions options)
    : program_(std::move(program)), options_(std::move(options)) {}

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source, TemplateOptions options) {
  if (source.empty()) return absl::FailedPreconditionError("the model has no chat template");
  if (source.size() > options.max_source_bytes) {
    return absl::FailedPreconditionError("the chat template is longer than " +
                                         std::to_string(options.max_source_bytes) + " bytes");
  }
  if (!IsValidUtf8(source)) {
    return absl::FailedPreconditionError("the chat template is not valid UTF-8");
  }
  BATON_ASSIGN_OR_RETURN(auto program, jinja::Parse(source));
  return ChatTemplate(std::move(program), std::move(options));
}

absl::StatusOr<std::vector<TextSegment>> ChatTemplate::Render(const ChatInput& input) const {
  BATON_RETURN_IF_ERROR(CheckMessages(input.messages));
  jinja::List messages;
  for (const ChatMessage& message : input.messages) messages.push_back(MessageValue(message));
  jinja::Map variables;
  Define("messages", Value(std::move(messages)), &variables);
  Define("add_generation_prompt", Value(input.add_generation_prompt), &variables);
  // As the reference passes them: templates tell "none" from "not defined".
  Define("tools", Value::MakeNone(), &variables);
  Define("documents", Value::MakeNone(), &variables);
  return RenderVariables(Value(std::move(variables)), input.now_unix_s);
}

absl::StatusOr<std::vector<TextSegment>> ChatTemplate::RenderVariables(
    const jinja::Value& variables, int64_t now_unix_s) const {
  if (!variables.IsMap()) return absl::InvalidArgumentError("variables are no mapping");
  jinja::Map all = variables.map();
  Define("bos_token", Value::Literal(options_.bos_token), &all);
  Define("eos_token", Value::Literal(options_.eos_token), &all);
  BATON_ASSIGN_OR_RETURN(
      const Text text,
      jinja::Render(*program_, all, now_unix_s, {options_.max_steps, options_.max_output_bytes}));
  std::vector<TextSegment> segments;
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    segments.push_back({text.bytes().substr(begin, run.end - begin), run.from_user});
    begin = run.end;
  }
  return segments;
}

TemplateOptions TemplateOptionsFor(const VocabData& data) {
  const auto text_of = [&data](TokenId token) {
    const bool exists = token >= 0 && static_cast<size_t>(token) < data.tokens.size();
    return exists ? data.tokens[static_cast<size_t>(token)] : std::string();
  };
  TemplateOptions options;
  options.bos_token = text_of(data.bos);
  options.eos_token = text_of(data.eos);
  return options;
}

}  // namespace baton
