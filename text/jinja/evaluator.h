#ifndef BATON_TEXT_JINJA_EVALUATOR_H_
#define BATON_TEXT_JINJA_EVALUATOR_H_

#include <cstdint>
#include <deque>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/call.h"
#include "text/jinja/scopes.h"
#include "text/jinja/value.h"

namespace baton::jinja {

// Runs the body of a macro: the interpreter of statements.
class MacroRunner {
 public:
  virtual ~MacroRunner() = default;
  virtual absl::StatusOr<Value> RunMacro(const MacroNode& macro, const Call& call) = 0;
};

// Values of expressions. Recursion is bounded by the depth of the tree. Errors that are the
// template's own carry the line.
class Evaluator {
 public:
  // All must outlive it.
  Evaluator(Scopes* scopes, Budget* budget, MacroRunner* macros, int64_t now_unix_s)
      : scopes_(*scopes), budget_(*budget), macros_(*macros), now_unix_s_(now_unix_s) {}

  absl::StatusOr<Value> Evaluate(const Expr& expr);

 private:
  absl::StatusOr<Value> EvaluateKind(const Expr& expr);
  absl::StatusOr<Value> EvaluateList(const Expr& expr);
  absl::StatusOr<Value> EvaluateMap(const Expr& expr);
  absl::StatusOr<Value> EvaluateSlice(const Expr& expr);
  absl::StatusOr<Value> EvaluateCompare(const Expr& expr);
  absl::StatusOr<Value> EvaluateConditional(const Expr& expr);
  absl::StatusOr<Value> EvaluateLogic(const Expr& expr);
  absl::StatusOr<Value> EvaluateCall(const Expr& expr);
  absl::StatusOr<Value> EvaluateFilter(const Expr& expr);
  absl::StatusOr<Value> EvaluateTest(const Expr& expr);
  absl::StatusOr<Value> MakeNamespace(const Call& call);
  absl::StatusOr<Call> EvaluateArguments(std::string_view name, const Arguments& arguments);
  // The same for calls that may keep their arguments inside other values.
  absl::StatusOr<Call> EvaluatePlainArguments(std::string_view name, const Arguments& arguments);
  // A value that may become part of another one: namespaces, loops and macros may not, their
  // targets can be gone sooner.
  absl::StatusOr<Value> EvaluatePlain(const Expr& expr);

  Scopes& scopes_;
  Budget& budget_;
  MacroRunner& macros_;
  const int64_t now_unix_s_;
  std::deque<Namespace> namespaces_;  // live as long as the rendering
};

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_EVALUATOR_H_
