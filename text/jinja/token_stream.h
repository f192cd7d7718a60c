// Reading position in a token list, with the questions a parser asks.
#ifndef BATON_TEXT_JINJA_TOKEN_STREAM_H_
#define BATON_TEXT_JINJA_TOKEN_STREAM_H_

#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "text/jinja/lexer.h"

namespace baton::jinja {

class TokenStream {
 public:
  // `tokens` ends with kEnd.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Peek(size_t ahead = 0) const {
    return tokens_[at_ + ahead < tokens_.size() ? at_ + ahead : tokens_.size() - 1];
  }
  int line() const { return Peek().line; }
  Token Next() {
    const Token token = Peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool At(Token::Kind kind) const { return Peek().kind == kind; }
  bool AtOperator(std::string_view op) const {
    return At(Token::Kind::kOperator) && Peek().value == op;
  }
  bool AtName(std::string_view name) const {
    return At(Token::Kind::kName) && Peek().value == name;
  }
  bool SkipOperator(std::string_view op) { return AtOperator(op) && Skip(); }
  bool SkipName(std::string_view name) { return AtName(name) && Skip(); }

  absl::Status Expect(Token::Kind kind, std::string_view what) {
    if (!At(kind)) return Unexpected(what);
    Skip();
    return absl::OkStatus();
  }
  absl::Status ExpectOperator(std::string_view op) {
    return SkipOperator(op) ? absl::OkStatus() : Unexpected(op);
  }
  absl::Status ExpectName(std::string_view name) {
    return SkipName(name) ? absl::OkStatus() : Unexpected(name);
  }
  absl::StatusOr<std::string> TakeName() {
    if (!At(Token::Kind::kName)) return Unexpected("a name");
    return Next().value;
  }

  absl::Status Unexpected(std::string_view wanted) const {
    return TemplateError(line(), "'" + Peek().value + "' where '" + std::string(wanted) +
                                     "' belongs is not supported");
  }
  absl::Status Unsupported(std::string_view what, std::string_view name) const {
    return TemplateError(line(),
                         std::string(what) + " '" + std::string(name) + "' is not supported");
  }
  absl::Status TooDeep() const {
    return TemplateError(line(), "nesting this deep is not supported");
  }

 private:
  bool Skip() {
    Next();
    return true;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_TOKEN_STREAM_H_
