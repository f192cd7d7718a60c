#ifndef BATON_TEXT_JINJA_EXPRESSION_PARSER_H_
#define BATON_TEXT_JINJA_EXPRESSION_PARSER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace baton::jinja {

// Recursive descent, one function per precedence level, lowest first. Recursion is bounded by
// kMaxDepth, which also bounds the depth of the tree.
class ExpressionParser {
 public:
  // `tokens` must outlive it.
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}

  // An expression, or several with commas between: a tuple.
  absl::StatusOr<ExprPtr> ParseTuple();
  absl::StatusOr<ExprPtr> ParseExpression();  // with `a if b else c`
  absl::StatusOr<ExprPtr> ParseOr();          // without: what `for ... in` takes

  struct CalledFunction {
    std::string name;
    int line;
  };
  // Functions called by name; macros among them may be defined later in the template.
  const std::vector<CalledFunction>& called_functions() const { return called_functions_; }

 private:
  using Level = absl::StatusOr<ExprPtr> (ExpressionParser::*)();

  absl::StatusOr<ExprPtr> ParseAnd();
  absl::StatusOr<ExprPtr> ParseNot();
  absl::StatusOr<ExprPtr> ParseCompare();
  absl::StatusOr<ExprPtr> ParseSum();
  absl::StatusOr<ExprPtr> ParseConcat();
  absl::StatusOr<ExprPtr> ParseProduct();
  absl::StatusOr<ExprPtr> ParsePower();
  absl::StatusOr<ExprPtr> ParseUnary();
  absl::StatusOr<ExprPtr> ParseSigned(bool with_filters);
  absl::StatusOr<ExprPtr> ParsePrimary();
  absl::StatusOr<ExprPtr> ParseLiteral();
  absl::StatusOr<ExprPtr> ParseParenthesis();
  absl::StatusOr<ExprPtr> ParseListLiteral();
  absl::StatusOr<ExprPtr> ParseMapLiteral();
  absl::StatusOr<ExprPtr> ParsePostfix(ExprPtr operand, bool with_filters);
  absl::StatusOr<ExprPtr> ParseAttribute(ExprPtr object);
  absl::StatusOr<ExprPtr> ParseItem(ExprPtr object);
  absl::StatusOr<ExprPtr> ParseCall(ExprPtr callee);
  absl::StatusOr<ExprPtr> ParseFilter(ExprPtr operand);
  absl::StatusOr<ExprPtr> ParseTest(ExprPtr operand);
  absl::Status ParseArguments(Arguments* arguments);

  absl::StatusOr<ExprPtr> ParseBinary(Level operand, const std::vector<std::string>& operators);
  // Takes the parts over; refuses trees that are too deep.
  absl::StatusOr<std::unique_ptr<Expr>> Make(Expr::Kind kind, int line, std::string name,
                                             std::vector<ExprPtr> parts, Arguments arguments = {});

  TokenStream& tokens_;
  int nesting_ = 0;
  std::vector<CalledFunction> called_functions_;
};

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_EXPRESSION_PARSER_H_
