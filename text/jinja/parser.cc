#include "text/jinja/parser.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "text/jinja/expression_parser.h"
#include "text/jinja/lexer.h"
#include "text/jinja/names.h"
#include "text/jinja/token_stream.h"

namespace baton::jinja {
namespace {

using StmtPtr = std::unique_ptr<Stmt>;
using TokenKind = Token::Kind;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(&tokens_) {}

  absl::StatusOr<std::shared_ptr<const Program>> Run() {
    auto program = std::make_shared<Program>();
    BATON_ASSIGN_OR_RETURN(program->body, ParseBody({}));
    for (const auto& call : expressions_.called_functions()) {
      if (IsKnownFunction(call.name)) continue;
      if (std::find(macros_.begin(), macros_.end(), call.name) != macros_.end()) continue;
      return TemplateError(call.line, "function '" + call.name + "' is not supported");
    }
    return std::shared_ptr<const Program>(std::move(program));
  }

 private:
  using Handler = absl::StatusOr<StmtPtr> (Parser::*)(StmtPtr);

  // Statements up to a tag whose first word is in `ends` (left unread, its "{%" read) or, when
  // `ends` is empty, to the end of the template.
  absl::StatusOr<Body> ParseBody(const std::vector<std::string>& ends);
  absl::StatusOr<StmtPtr> ParseOutput();
  absl::StatusOr<StmtPtr> ParseStatement();
  absl::StatusOr<StmtPtr> ParseIf(StmtPtr stmt);
  absl::StatusOr<StmtPtr> ParseFor(StmtPtr stmt);
  absl::StatusOr<StmtPtr> ParseSet(StmtPtr stmt);
  absl::StatusOr<StmtPtr> ParseMacro(StmtPtr stmt);
  absl::StatusOr<StmtPtr> ParseLoopControl(StmtPtr stmt);
  absl::StatusOr<StmtPtr> ParseGeneration(StmtPtr stmt);
  absl::Status ParseParameters(MacroNode* macro);
  absl::Status ParseTargets(std::vector<std::string>* targets);
  // "%}", a body, and the tag `end`.
  absl::StatusOr<Body> ParseBlock(const std::string& end);

  absl::Status CloseTag() { return tokens_.Expect(TokenKind::kCloseBlock, "%}"); }

  TokenStream tokens_;
  ExpressionParser expressions_;
  std::vector<std::string> macros_;
  int nesting_ = 0;
  int loops_ = 0;
};

absl::StatusOr<Body> Parser::ParseBody(const std::vector<std::string>& ends) {
  if (++nesting_ > kMaxDepth) return tokens_.TooDeep();
  Body body;
  for (;;) {
    if (tokens_.At(TokenKind::kEnd)) {
      if (!ends.empty()) return tokens_.Unexpected(ends.back());
      break;
    }
    if (tokens_.At(TokenKind::kText)) {
      auto stmt = std::make_unique<Stmt>();
      stmt->kind = Stmt::Kind::kText;
      stmt->line = tokens_.line();
      stmt->text = Value::Literal(tokens_.Next().value);
      body.push_back(std::move(stmt));
    } else if (tokens_.At(TokenKind::kOpenOutput)) {
      BATON_ASSIGN_OR_RETURN(body.emplace_back(), ParseOutput());
    } else {
      BATON_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kOpenBlock, "{%"));
      if (std::find(ends.begin(), ends.end(), tokens_.Peek().value) != ends.end()) break;
      BATON_ASSIGN_OR_RETURN(body.emplace_back(), ParseStatement());
    }
  }
  --nesting_;
  return body;
}

absl::StatusOr<StmtPtr> Parser::ParseOutput() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = Stmt::Kind::kOutput;
  stmt->line = tokens_.Next().line;
  BATON_ASSIGN_OR_RETURN(stmt->expr, expressions_.ParseTuple());
  BATON_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kCloseOutput, "}}"));
  return stmt;
}

absl::StatusOr<StmtPtr> Parser::ParseStatement() {
  static constexpr std::pair<std::string_view, Handler> kHandlers[] = {
      {"if", &Parser::ParseIf},
      {"for", &Parser::ParseFor},
      {"set", &Parser::ParseSet},
      {"macro", &Parser::ParseMacro},
      {"break", &Parser::ParseLoopControl},
      {"continue", &Parser::ParseLoopControl},
      {"generation", &Parser::ParseGeneration},
  };
  if (!tokens_.At(TokenKind::kName)) return tokens_.Unexpected("a statement");
  auto stmt = std::make_unique<Stmt>();
  stmt->line = tokens_.line();
  for (const auto& [name, handler] : kHandlers) {
    if (tokens_.AtName(name)) return (this->*handler)(std::move(stmt));
  }
  return tokens_.Unsupported("statement", tokens_.Peek().value);
}

absl::StatusOr<Body> Parser::ParseBlock(const std::string& end) {
  BATON_RETURN_IF_ERROR(CloseTag());
  BATON_ASSIGN_OR_RETURN(Body body, ParseBody({end}));
  BATON_RETURN_IF_ERROR(tokens_.ExpectName(end));
  return body;
}

absl::StatusOr<StmtPtr> Parser::ParseIf(StmtPtr stmt) {
  stmt->kind = Stmt::Kind::kIf;
  for (;;) {
    Branch branch;
    const bool otherwise = tokens_.Next().value == "else";
    if (!otherwise) {
      BATON_ASSIGN_OR_RETURN(branch.condition, expressions_.ParseTuple());
    }
    BATON_RETURN_IF_ERROR(CloseTag());
    const std::vector<std::string> ends = otherwise
                                              ? std::vector<std::string>{"endif"}
                                              : std::vector<std::string>{"elif", "else", "endif"};
    BATON_ASSIGN_OR_RETURN(branch.body, ParseBody(ends));
    stmt->branches.push_back(std::move(branch));
    if (tokens_.SkipName("endif")) break;
  }
  BATON_RETURN_IF_ERROR(CloseTag());
  return stmt;
}

absl::Status Parser::ParseTargets(std::vector<std::string>* targets) {
  const bool parenthesis = tokens_.SkipOperator("(");
  do {
    BATON_ASSIGN_OR_RETURN(targets->emplace_back(), tokens_.TakeName());
  } while (tokens_.SkipOperator(","));
  return parenthesis ? tokens_.ExpectOperator(")") : absl::OkStatus();
}

absl::StatusOr<StmtPtr> Parser::ParseFor(StmtPtr stmt) {
  tokens_.Next();
  stmt->kind = Stmt::Kind::kFor;
  BATON_RETURN_IF_ERROR(ParseTargets(&stmt->targets));
  BATON_RETURN_IF_ERROR(tokens_.ExpectName("in"));
  BATON_ASSIGN_OR_RETURN(stmt->expr, expressions_.ParseOr());
  if (tokens_.SkipName("if")) {
    BATON_ASSIGN_OR_RETURN(stmt->filter, expressions_.ParseExpression());
  }
  if (tokens_.AtName("recursive")) return tokens_.Unsupported("loop modifier", "recursive");
  BATON_RETURN_IF_ERROR(CloseTag());
  ++loops_;
  stmt->branches.emplace_back();
  BATON_ASSIGN_OR_RETURN(stmt->branches.back().body, ParseBody({"else", "endfor"}));
  --loops_;
  if (tokens_.SkipName("else")) {
    stmt->branches.emplace_back();
    BATON_ASSIGN_OR_RETURN(stmt->branches.back().body, ParseBlock("endfor"));
  } else {
    BATON_RETURN_IF_ERROR(tokens_.ExpectName("endfor"));
  }
  BATON_RETURN_IF_ERROR(CloseTag());
  return stmt;
}

absl::StatusOr<StmtPtr> Parser::ParseSet(StmtPtr stmt) {
  tokens_.Next();
  stmt->kind = Stmt::Kind::kSet;
  BATON_RETURN_IF_ERROR(ParseTargets(&stmt->targets));
  if (stmt->targets.size() == 1 && tokens_.SkipOperator(".")) {
    stmt->kind = Stmt::Kind::kSetAttribute;
    BATON_ASSIGN_OR_RETURN(stmt->targets.emplace_back(), tokens_.TakeName());
  }
  if (tokens_.SkipOperator("=")) {
    BATON_ASSIGN_OR_RETURN(stmt->expr, expressions_.ParseTuple());
  } else {
    if (stmt->targets.size() != 1) return tokens_.Unexpected("=");
    stmt->kind = Stmt::Kind::kSetBody;
    stmt->branches.emplace_back();
    BATON_ASSIGN_OR_RETURN(stmt->branches.back().body, ParseBlock("endset"));
  }
  BATON_RETURN_IF_ERROR(CloseTag());
  return stmt;
}

absl::Status Parser::ParseParameters(MacroNode* macro) {
  BATON_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  while (!tokens_.SkipOperator(")")) {
    if (!macro->parameters.empty()) BATON_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    BATON_ASSIGN_OR_RETURN(macro->parameters.emplace_back(), tokens_.TakeName());
    macro->defaults.emplace_back();
    if (!tokens_.SkipOperator("=")) continue;
    BATON_ASSIGN_OR_RETURN(macro->defaults.back(), expressions_.ParseExpression());
  }
  return absl::OkStatus();
}

absl::StatusOr<StmtPtr> Parser::ParseMacro(StmtPtr stmt) {
  tokens_.Next();
  stmt->kind = Stmt::Kind::kMacro;
  auto macro = std::make_unique<MacroNode>();
  BATON_ASSIGN_OR_RETURN(macro->name, tokens_.TakeName());
  macros_.push_back(macro->name);
  BATON_RETURN_IF_ERROR(ParseParameters(macro.get()));
  const int outer_loops = std::exchange(loops_, 0);
  BATON_ASSIGN_OR_RETURN(macro->body, ParseBlock("endmacro"));
  loops_ = outer_loops;
  stmt->macro = std::move(macro);
  BATON_RETURN_IF_ERROR(CloseTag());
  return stmt;
}

absl::StatusOr<StmtPtr> Parser::ParseLoopControl(StmtPtr stmt) {
  if (loops_ == 0) return tokens_.Unexpected("a statement outside of loops");
  const bool breaks = tokens_.Next().value == "break";
  stmt->kind = breaks ? Stmt::Kind::kBreak : Stmt::Kind::kContinue;
  BATON_RETURN_IF_ERROR(CloseTag());
  return stmt;
}

// Marks what the model itself wrote, for training; renders as its body.
absl::StatusOr<StmtPtr> Parser::ParseGeneration(StmtPtr stmt) {
  tokens_.Next();
  stmt->kind = Stmt::Kind::kGroup;
  stmt->branches.emplace_back();
  BATON_ASSIGN_OR_RETURN(stmt->branches.back().body, ParseBlock("endgeneration"));
  BATON_RETURN_IF_ERROR(CloseTag());
  return stmt;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Program>> Parse(std::string_view source) {
  BATON_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace baton::jinja
