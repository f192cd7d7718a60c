// Cuts a template into plain text and the tokens of its tags.
#ifndef BATON_TEXT_JINJA_LEXER_H_
#define BATON_TEXT_JINJA_LEXER_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::jinja {

struct Token {
  enum class Kind {
    kText,       // template text outside tags, white-space control applied
    kOpenBlock,  // {%
    kCloseBlock,
    kOpenOutput,  // {{
    kCloseOutput,
    kName,
    kString,  // value: unescaped
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind;
  std::string value;
  int line;
};

// With trim_blocks and lstrip_blocks, as chat templates are rendered everywhere. The last token is
// kEnd. FAILED_PRECONDITION with the line for text that is no template.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// FAILED_PRECONDITION "chat template line N: ...".
absl::Status TemplateError(int line, std::string_view what);

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_LEXER_H_
