#include "text/jinja/evaluator.h"

#include <string>
#include <utility>

#include "common/status_macros.h"
#include "text/jinja/builtins.h"
#include "text/jinja/lexer.h"
#include "text/jinja/operators.h"

namespace baton::jinja {
namespace {

using Kind = Expr::Kind;

// Adds the line once, to errors of the template (those of the conversation stand as they are).
absl::Status AtLine(int line, const absl::Status& status) {
  if (status.code() != absl::StatusCode::kFailedPrecondition) return status;
  const std::string message(status.message());
  return message.rfind("chat template line ", 0) == 0 ? status : TemplateError(line, message);
}

absl::Status CheckPlain(const Value& value) {
  if (value.IsPlain()) return absl::OkStatus();
  return CannotRender("keeping a " + std::string(value.KindName()) +
                      " inside another value is not supported");
}

}  // namespace

absl::StatusOr<Value> Evaluator::Evaluate(const Expr& expr) {
  BATON_RETURN_IF_ERROR(budget_.Spend(1));
  absl::StatusOr<Value> value = EvaluateKind(expr);
  if (!value.ok()) return AtLine(expr.line, value.status());
  return value;
}

absl::StatusOr<Value> Evaluator::EvaluateKind(const Expr& expr) {
  switch (expr.kind) {
    case Kind::kLiteral:
      return expr.value;
    case Kind::kName:
      return scopes_.Get(expr.name);
    case Kind::kList:
      return EvaluateList(expr);
    case Kind::kMap:
      return EvaluateMap(expr);
    case Kind::kSlice:
      return EvaluateSlice(expr);
    case Kind::kCall:
      return EvaluateCall(expr);
    case Kind::kFilter:
      return EvaluateFilter(expr);
    case Kind::kTest:
      return EvaluateTest(expr);
    case Kind::kCompare:
      return EvaluateCompare(expr);
    case Kind::kConditional:
      return EvaluateConditional(expr);
    default:
      break;
  }
  if (expr.kind == Kind::kAnd || expr.kind == Kind::kOr) return EvaluateLogic(expr);
  BATON_ASSIGN_OR_RETURN(const Value first, Evaluate(*expr.parts[0]));
  if (expr.kind == Kind::kAttribute) return GetAttribute(first, expr.name);
  if (expr.kind == Kind::kNot) return Value(!first.Truthy());
  if (expr.kind == Kind::kNegate) return Negate(first);
  if (expr.kind == Kind::kPlus) return first;
  BATON_ASSIGN_OR_RETURN(const Value second, Evaluate(*expr.parts[1]));
  if (expr.kind == Kind::kItem) return GetItem(first, second, &budget_);
  return ApplyBinary(expr.name, first, second, &budget_);
}

absl::StatusOr<Value> Evaluator::EvaluatePlain(const Expr& expr) {
  BATON_ASSIGN_OR_RETURN(Value value, Evaluate(expr));
  BATON_RETURN_IF_ERROR(CheckPlain(value));
  return value;
}

absl::StatusOr<Value> Evaluator::EvaluateList(const Expr& expr) {
  List items;
  for (const ExprPtr& part : expr.parts) {
    BATON_ASSIGN_OR_RETURN(items.emplace_back(), EvaluatePlain(*part));
  }
  Value list(std::move(items));
  BATON_RETURN_IF_ERROR(budget_.SpendValue(list));
  return list;
}

absl::StatusOr<Value> Evaluator::EvaluateMap(const Expr& expr) {
  Map map;
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    BATON_ASSIGN_OR_RETURN(const Value key, Evaluate(*expr.parts[i]));
    if (!key.IsText()) return CannotRender("a mapping with keys other than text is not supported");
    BATON_ASSIGN_OR_RETURN(Value value, EvaluatePlain(*expr.parts[i + 1]));
    map.emplace_back(key.text(), std::move(value));
  }
  Value made(std::move(map));
  BATON_RETURN_IF_ERROR(budget_.SpendValue(made));
  return made;
}

absl::StatusOr<Value> Evaluator::EvaluateSlice(const Expr& expr) {
  BATON_ASSIGN_OR_RETURN(const Value object, Evaluate(*expr.parts[0]));
  Value bounds[3] = {Value::MakeNone(), Value::MakeNone(), Value::MakeNone()};
  for (size_t i = 0; i < 3; ++i) {
    if (expr.parts[i + 1] == nullptr) continue;
    BATON_ASSIGN_OR_RETURN(bounds[i], Evaluate(*expr.parts[i + 1]));
  }
  return GetSlice(object, bounds[0], bounds[1], bounds[2], &budget_);
}

absl::StatusOr<Value> Evaluator::EvaluateCompare(const Expr& expr) {
  BATON_ASSIGN_OR_RETURN(Value left, Evaluate(*expr.parts[0]));
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    BATON_ASSIGN_OR_RETURN(Value right, Evaluate(*expr.parts[i + 1]));
    BATON_ASSIGN_OR_RETURN(const bool holds,
                           ApplyComparison(expr.operators[i], left, right, &budget_));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

absl::StatusOr<Value> Evaluator::EvaluateConditional(const Expr& expr) {
  BATON_ASSIGN_OR_RETURN(const Value condition, Evaluate(*expr.parts[0]));
  const ExprPtr& chosen = condition.Truthy() ? expr.parts[1] : expr.parts[2];
  return chosen == nullptr ? absl::StatusOr<Value>(Value()) : Evaluate(*chosen);
}

absl::StatusOr<Value> Evaluator::EvaluateLogic(const Expr& expr) {
  BATON_ASSIGN_OR_RETURN(Value left, Evaluate(*expr.parts[0]));
  const bool decided = left.Truthy() == (expr.kind == Kind::kOr);
  return decided ? absl::StatusOr<Value>(std::move(left)) : Evaluate(*expr.parts[1]);
}

absl::StatusOr<Call> Evaluator::EvaluateArguments(std::string_view name,
                                                  const Arguments& arguments) {
  Call call;
  call.name = name;
  for (const ExprPtr& argument : arguments.positional) {
    BATON_ASSIGN_OR_RETURN(call.positional.emplace_back(), Evaluate(*argument));
  }
  for (const auto& argument : arguments.named) {
    BATON_ASSIGN_OR_RETURN(Value value, Evaluate(*argument.second));
    call.named.emplace_back(argument.first, std::move(value));
  }
  return call;
}

absl::StatusOr<Call> Evaluator::EvaluatePlainArguments(std::string_view name,
                                                       const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(Call call, EvaluateArguments(name, arguments));
  for (const Value& value : call.positional) BATON_RETURN_IF_ERROR(CheckPlain(value));
  for (const auto& argument : call.named) BATON_RETURN_IF_ERROR(CheckPlain(argument.second));
  return call;
}

absl::StatusOr<Value> Evaluator::EvaluateCall(const Expr& expr) {
  const Expr& callee = *expr.parts[0];
  if (callee.kind == Kind::kAttribute) {
    BATON_ASSIGN_OR_RETURN(const Value object, Evaluate(*callee.parts[0]));
    BATON_ASSIGN_OR_RETURN(const Call call, EvaluatePlainArguments(callee.name, expr.arguments));
    return CallMethod(object, call, &budget_);
  }
  if (const MacroNode* macro = scopes_.Get(callee.name).AsMacro(); macro != nullptr) {
    BATON_ASSIGN_OR_RETURN(const Call call, EvaluateArguments(callee.name, expr.arguments));
    return macros_.RunMacro(*macro, call);
  }
  BATON_ASSIGN_OR_RETURN(const Call call, EvaluatePlainArguments(callee.name, expr.arguments));
  if (callee.name == "namespace") return MakeNamespace(call);
  return CallFunction(call, now_unix_s_, &budget_);
}

absl::StatusOr<Value> Evaluator::MakeNamespace(const Call& call) {
  if (!call.positional.empty()) return CannotRender("'namespace' of a value is not supported");
  Namespace made;
  for (const auto& argument : call.named) {
    made.entries.emplace_back(Text(std::string(argument.first), false), argument.second);
  }
  namespaces_.push_back(std::move(made));
  return Value(&namespaces_.back());
}

absl::StatusOr<Value> Evaluator::EvaluateFilter(const Expr& expr) {
  BATON_ASSIGN_OR_RETURN(const Value input, Evaluate(*expr.parts[0]));
  BATON_ASSIGN_OR_RETURN(const Call call, EvaluatePlainArguments(expr.name, expr.arguments));
  return ApplyFilter(input, call, &budget_);
}

absl::StatusOr<Value> Evaluator::EvaluateTest(const Expr& expr) {
  BATON_ASSIGN_OR_RETURN(const Value input, Evaluate(*expr.parts[0]));
  BATON_ASSIGN_OR_RETURN(const Call call, EvaluatePlainArguments(expr.name, expr.arguments));
  BATON_ASSIGN_OR_RETURN(const bool passes, ApplyTest(input, call, &budget_));
  return Value(passes);
}

}  // namespace baton::jinja
