#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/status_macros.h"
#include "text/jinja/names.h"

namespace baton::jinja {
namespace {

using Kind = Expr::Kind;
using TokenKind = Token::Kind;

template <typename... Parts>
std::vector<ExprPtr> PartsOf(Parts... parts) {
  std::vector<ExprPtr> out;
  (out.push_back(std::move(parts)), ...);
  return out;
}

absl::StatusOr<ExprPtr> Literal(int line, Value value) {
  auto expr = std::make_unique<Expr>();
  expr->kind = Kind::kLiteral;
  expr->line = line;
  expr->value = std::move(value);
  return expr;
}

// Counts a level of recursion for its lifetime.
class Nested {
 public:
  explicit Nested(int* nesting) : nesting_(*nesting) { ++nesting_; }
  ~Nested() { --nesting_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  int& nesting_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Expr>> ExpressionParser::Make(Kind kind, int line, std::string name,
                                                             std::vector<ExprPtr> parts,
                                                             Arguments arguments) {
  auto expr = std::make_unique<Expr>();
  const auto deepen = [&expr](const ExprPtr& part) {
    if (part != nullptr) expr->depth = std::max(expr->depth, part->depth + 1);
  };
  for (const ExprPtr& part : parts) deepen(part);
  for (const ExprPtr& argument : arguments.positional) deepen(argument);
  for (const auto& argument : arguments.named) deepen(argument.second);
  if (expr->depth > kMaxDepth) return tokens_.TooDeep();
  expr->kind = kind;
  expr->line = line;
  expr->name = std::move(name);
  expr->parts = std::move(parts);
  expr->arguments = std::move(arguments);
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTuple() {
  const int line = tokens_.line();
  BATON_ASSIGN_OR_RETURN(ExprPtr first, ParseExpression());
  if (!tokens_.AtOperator(",")) return first;
  std::vector<ExprPtr> items = PartsOf(std::move(first));
  while (tokens_.SkipOperator(",")) {
    if (tokens_.AtOperator(")") || tokens_.At(TokenKind::kCloseBlock) ||
        tokens_.At(TokenKind::kCloseOutput)) {
      break;
    }
    BATON_ASSIGN_OR_RETURN(items.emplace_back(), ParseExpression());
  }
  return Make(Kind::kList, line, "", std::move(items));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseExpression() {
  const Nested nested(&nesting_);
  if (nesting_ > kMaxDepth) return tokens_.TooDeep();
  const int line = tokens_.line();
  BATON_ASSIGN_OR_RETURN(ExprPtr value, ParseOr());
  while (tokens_.SkipName("if")) {
    BATON_ASSIGN_OR_RETURN(ExprPtr condition, ParseOr());
    ExprPtr otherwise;
    if (tokens_.SkipName("else")) {
      BATON_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    BATON_ASSIGN_OR_RETURN(
        value, Make(Kind::kConditional, line, "",
                    PartsOf(std::move(condition), std::move(value), std::move(otherwise))));
  }
  return value;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseOr() {
  const int line = tokens_.line();
  BATON_ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
  while (tokens_.SkipName("or")) {
    BATON_ASSIGN_OR_RETURN(ExprPtr right, ParseAnd());
    BATON_ASSIGN_OR_RETURN(left,
                           Make(Kind::kOr, line, "", PartsOf(std::move(left), std::move(right))));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseAnd() {
  const int line = tokens_.line();
  BATON_ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
  while (tokens_.SkipName("and")) {
    BATON_ASSIGN_OR_RETURN(ExprPtr right, ParseNot());
    BATON_ASSIGN_OR_RETURN(left,
                           Make(Kind::kAnd, line, "", PartsOf(std::move(left), std::move(right))));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseNot() {
  const Nested nested(&nesting_);
  if (nesting_ > kMaxDepth) return tokens_.TooDeep();
  const int line = tokens_.line();
  if (!tokens_.SkipName("not")) return ParseCompare();
  BATON_ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
  return Make(Kind::kNot, line, "", PartsOf(std::move(operand)));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseCompare() {
  static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  const int line = tokens_.line();
  BATON_ASSIGN_OR_RETURN(ExprPtr first, ParseSum());
  std::vector<ExprPtr> parts = PartsOf(std::move(first));
  std::vector<std::string> operators;
  for (;;) {
    const bool compares =
        tokens_.At(TokenKind::kOperator) && std::find(std::begin(kOperators), std::end(kOperators),
                                                      tokens_.Peek().value) != std::end(kOperators);
    if (compares) {
      operators.push_back(tokens_.Next().value);
    } else if (tokens_.SkipName("in")) {
      operators.emplace_back("in");
    } else if (tokens_.AtName("not") && tokens_.Peek(1).kind == TokenKind::kName &&
               tokens_.Peek(1).value == "in") {
      tokens_.Next();
      tokens_.Next();
      operators.emplace_back("not in");
    } else {
      break;
    }
    BATON_ASSIGN_OR_RETURN(parts.emplace_back(), ParseSum());
  }
  if (operators.empty()) return std::move(parts.front());
  BATON_ASSIGN_OR_RETURN(auto expr, Make(Kind::kCompare, line, "", std::move(parts)));
  expr->operators = std::move(operators);
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseBinary(Level operand,
                                                      const std::vector<std::string>& operators) {
  const int line = tokens_.line();
  BATON_ASSIGN_OR_RETURN(ExprPtr left, (this->*operand)());
  while (tokens_.At(TokenKind::kOperator) &&
         std::find(operators.begin(), operators.end(), tokens_.Peek().value) != operators.end()) {
    const std::string op = tokens_.Next().value;
    BATON_ASSIGN_OR_RETURN(ExprPtr right, (this->*operand)());
    BATON_ASSIGN_OR_RETURN(
        left, Make(Kind::kBinary, line, op, PartsOf(std::move(left), std::move(right))));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseSum() {
  return ParseBinary(&ExpressionParser::ParseConcat, {"+", "-"});
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseConcat() {
  return ParseBinary(&ExpressionParser::ParseProduct, {"~"});
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseProduct() {
  return ParseBinary(&ExpressionParser::ParsePower, {"*", "/", "//", "%"});
}

absl::StatusOr<ExprPtr> ExpressionParser::ParsePower() {
  return ParseBinary(&ExpressionParser::ParseUnary, {"**"});
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseUnary() { return ParseSigned(true); }

absl::StatusOr<ExprPtr> ExpressionParser::ParseSigned(bool with_filters) {
  const Nested nested(&nesting_);
  if (nesting_ > kMaxDepth) return tokens_.TooDeep();
  const int line = tokens_.line();
  ExprPtr operand;
  if (tokens_.AtOperator("-") || tokens_.AtOperator("+")) {
    const bool negates = tokens_.Next().value == "-";
    BATON_ASSIGN_OR_RETURN(operand, ParseSigned(false));
    BATON_ASSIGN_OR_RETURN(operand, Make(negates ? Kind::kNegate : Kind::kPlus, line, "",
                                         PartsOf(std::move(operand))));
  } else {
    BATON_ASSIGN_OR_RETURN(operand, ParsePrimary());
  }
  return ParsePostfix(std::move(operand), with_filters);
}

absl::StatusOr<ExprPtr> ExpressionParser::ParsePrimary() {
  const int line = tokens_.line();
  if (tokens_.SkipOperator("(")) return ParseParenthesis();
  if (tokens_.SkipOperator("[")) return ParseListLiteral();
  if (tokens_.SkipOperator("{")) return ParseMapLiteral();
  if (!tokens_.At(TokenKind::kName)) return ParseLiteral();
  const std::string name = tokens_.Next().value;
  if (name == "true" || name == "True") return Literal(line, Value(true));
  if (name == "false" || name == "False") return Literal(line, Value(false));
  if (name == "none" || name == "None") return Literal(line, Value::MakeNone());
  return Make(Kind::kName, line, name, {});
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseLiteral() {
  const int line = tokens_.line();
  if (tokens_.At(TokenKind::kString)) {
    std::string text;
    while (tokens_.At(TokenKind::kString)) text += tokens_.Next().value;
    return Literal(line, Value::Literal(text));
  }
  if (tokens_.At(TokenKind::kFloat)) {
    return Literal(line, Value(std::strtod(tokens_.Next().value.c_str(), nullptr)));
  }
  if (!tokens_.At(TokenKind::kInteger)) return tokens_.Unexpected("an expression");
  const std::string& digits = tokens_.Peek().value;
  int64_t number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (parsed.ec != std::errc()) return tokens_.Unsupported("number", digits);
  tokens_.Next();
  return Literal(line, Value(number));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseParenthesis() {
  if (tokens_.SkipOperator(")")) return Make(Kind::kList, tokens_.line(), "", {});
  BATON_ASSIGN_OR_RETURN(ExprPtr inner, ParseTuple());
  BATON_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return inner;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseListLiteral() {
  const int line = tokens_.line();
  std::vector<ExprPtr> items;
  while (!tokens_.SkipOperator("]")) {
    if (!items.empty()) BATON_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.SkipOperator("]")) break;
    BATON_ASSIGN_OR_RETURN(items.emplace_back(), ParseExpression());
  }
  return Make(Kind::kList, line, "", std::move(items));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseMapLiteral() {
  const int line = tokens_.line();
  std::vector<ExprPtr> parts;
  while (!tokens_.SkipOperator("}")) {
    if (!parts.empty()) BATON_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.SkipOperator("}")) break;
    BATON_ASSIGN_OR_RETURN(parts.emplace_back(), ParseExpression());
    BATON_RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    BATON_ASSIGN_OR_RETURN(parts.emplace_back(), ParseExpression());
  }
  return Make(Kind::kMap, line, "", std::move(parts));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParsePostfix(ExprPtr operand, bool with_filters) {
  for (;;) {
    if (tokens_.SkipOperator(".")) {
      BATON_ASSIGN_OR_RETURN(operand, ParseAttribute(std::move(operand)));
    } else if (tokens_.SkipOperator("[")) {
      BATON_ASSIGN_OR_RETURN(operand, ParseItem(std::move(operand)));
    } else if (tokens_.AtOperator("(")) {
      BATON_ASSIGN_OR_RETURN(operand, ParseCall(std::move(operand)));
    } else if (with_filters && tokens_.SkipOperator("|")) {
      BATON_ASSIGN_OR_RETURN(operand, ParseFilter(std::move(operand)));
    } else if (with_filters && tokens_.SkipName("is")) {
      BATON_ASSIGN_OR_RETURN(operand, ParseTest(std::move(operand)));
    } else {
      return operand;
    }
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseAttribute(ExprPtr object) {
  const int line = tokens_.line();
  BATON_ASSIGN_OR_RETURN(std::string name, tokens_.TakeName());
  return Make(Kind::kAttribute, line, std::move(name), PartsOf(std::move(object)));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseItem(ExprPtr object) {
  const int line = tokens_.line();
  ExprPtr bounds[3];
  size_t colons = 0;
  while (!tokens_.SkipOperator("]")) {
    if (tokens_.SkipOperator(":")) {
      if (++colons > 2) return tokens_.Unexpected("]");
      continue;
    }
    if (bounds[colons] != nullptr) return tokens_.Unexpected("]");
    BATON_ASSIGN_OR_RETURN(bounds[colons], ParseExpression());
  }
  if (colons > 0) {
    return Make(Kind::kSlice, line, "",
                PartsOf(std::move(object), std::move(bounds[0]), std::move(bounds[1]),
                        std::move(bounds[2])));
  }
  if (bounds[0] == nullptr) return tokens_.Unexpected("an expression");
  return Make(Kind::kItem, line, "", PartsOf(std::move(object), std::move(bounds[0])));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseCall(ExprPtr callee) {
  const int line = tokens_.line();
  if (callee->kind == Kind::kAttribute) {
    if (!IsKnownMethod(callee->name)) return tokens_.Unsupported("method", callee->name);
  } else if (callee->kind == Kind::kName) {
    called_functions_.push_back({callee->name, line});
  } else {
    return tokens_.Unsupported("call of", "a computed function");
  }
  Arguments arguments;
  BATON_RETURN_IF_ERROR(ParseArguments(&arguments));
  return Make(Kind::kCall, line, "", PartsOf(std::move(callee)), std::move(arguments));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseFilter(ExprPtr operand) {
  const int line = tokens_.line();
  BATON_ASSIGN_OR_RETURN(std::string name, tokens_.TakeName());
  if (!IsKnownFilter(name)) return tokens_.Unsupported("filter", name);
  Arguments arguments;
  if (tokens_.AtOperator("(")) BATON_RETURN_IF_ERROR(ParseArguments(&arguments));
  return Make(Kind::kFilter, line, std::move(name), PartsOf(std::move(operand)),
              std::move(arguments));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTest(ExprPtr operand) {
  const int line = tokens_.line();
  const bool negated = tokens_.SkipName("not");
  BATON_ASSIGN_OR_RETURN(std::string name, tokens_.TakeName());
  if (!IsKnownTest(name)) return tokens_.Unsupported("test", name);
  Arguments arguments;
  const bool names_operand = tokens_.At(TokenKind::kName) && !tokens_.AtName("else") &&
                             !tokens_.AtName("or") && !tokens_.AtName("and") &&
                             !tokens_.AtName("is") && !tokens_.AtName("if") &&
                             !tokens_.AtName("in") && !tokens_.AtName("not");
  if (tokens_.AtOperator("(")) {
    BATON_RETURN_IF_ERROR(ParseArguments(&arguments));
  } else if (names_operand || tokens_.At(TokenKind::kString) || tokens_.At(TokenKind::kInteger) ||
             tokens_.At(TokenKind::kFloat) || tokens_.AtOperator("[")) {
    BATON_ASSIGN_OR_RETURN(ExprPtr primary, ParsePrimary());
    BATON_ASSIGN_OR_RETURN(arguments.positional.emplace_back(),
                           ParsePostfix(std::move(primary), false));
  }
  BATON_ASSIGN_OR_RETURN(ExprPtr test, Make(Kind::kTest, line, std::move(name),
                                            PartsOf(std::move(operand)), std::move(arguments)));
  if (!negated) return test;
  return Make(Kind::kNot, line, "", PartsOf(std::move(test)));
}

absl::Status ExpressionParser::ParseArguments(Arguments* arguments) {
  BATON_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  bool first = true;
  while (!tokens_.SkipOperator(")")) {
    if (!first) BATON_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.SkipOperator(")")) break;
    first = false;
    const bool named = tokens_.At(TokenKind::kName) &&
                       tokens_.Peek(1).kind == TokenKind::kOperator && tokens_.Peek(1).value == "=";
    std::string name;
    if (named) {
      name = tokens_.Next().value;
      tokens_.Next();
    } else if (!arguments->named.empty()) {
      return tokens_.Unexpected("a named argument");
    }
    BATON_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    if (named) {
      arguments->named.emplace_back(std::move(name), std::move(value));
    } else {
      arguments->positional.push_back(std::move(value));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::jinja
