#include "text/jinja/interpreter.h"

#include <string>
#include <utility>

#include "common/status_macros.h"
#include "text/jinja/budget.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/lexer.h"
#include "text/jinja/loop.h"
#include "text/jinja/operators.h"
#include "text/jinja/scopes.h"

namespace baton::jinja {
namespace {

// Together with kMaxDepth this bounds the recursion of a rendering.
constexpr int kMaxMacroDepth = 8;

enum class Flow { kNext, kBreak, kContinue };

class Interpreter : private MacroRunner {
 public:
  Interpreter(const Map& variables, int64_t now_unix_s, const RenderLimits& limits)
      : budget_(limits.max_steps, limits.max_text_bytes),
        scopes_(variables),
        evaluator_(&scopes_, &budget_, this, now_unix_s) {}

  absl::StatusOr<Text> Run(const Body& body) {
    BATON_RETURN_IF_ERROR(RunBody(body).status());
    return std::move(out_);
  }

 private:
  absl::StatusOr<Value> RunMacro(const MacroNode& macro, const Call& call) override;

  absl::StatusOr<Flow> RunBody(const Body& body);
  absl::StatusOr<Flow> RunStmt(const Stmt& stmt);
  absl::StatusOr<Flow> RunIf(const Stmt& stmt);
  absl::StatusOr<Flow> RunFor(const Stmt& stmt);
  absl::StatusOr<Value> FilteredItems(const Stmt& stmt);
  absl::Status RunSet(const Stmt& stmt);
  absl::Status RunSetAttribute(const Stmt& stmt);
  absl::Status Assign(const Stmt& stmt, const Value& value);
  absl::Status BindParameters(const MacroNode& macro, const Call& call);
  absl::Status Write(const Value& value);
  // What `body` writes.
  absl::StatusOr<Value> Capture(const Body& body);

  Budget budget_;
  Scopes scopes_;
  Evaluator evaluator_;
  Text out_;
  int macro_depth_ = 0;
};

absl::Status Interpreter::Write(const Value& value) {
  BATON_RETURN_IF_ERROR(budget_.SpendText(value.weight()));
  if (value.IsText()) {
    out_.Append(value.text());
  } else {
    out_.Append(value.ToText());
  }
  return budget_.CheckText(out_.size());
}

absl::StatusOr<Value> Interpreter::Capture(const Body& body) {
  Text outer = std::exchange(out_, Text());
  const absl::Status status = RunBody(body).status();
  Text captured = std::exchange(out_, std::move(outer));
  if (!status.ok()) return status;
  return Value(std::move(captured));
}

absl::StatusOr<Flow> Interpreter::RunBody(const Body& body) {
  for (const auto& stmt : body) {
    BATON_ASSIGN_OR_RETURN(const Flow flow, RunStmt(*stmt));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Flow> Interpreter::RunStmt(const Stmt& stmt) {
  BATON_RETURN_IF_ERROR(budget_.Spend(1));
  switch (stmt.kind) {
    case Stmt::Kind::kText:
      BATON_RETURN_IF_ERROR(Write(stmt.text));
      return Flow::kNext;
    case Stmt::Kind::kOutput: {
      BATON_ASSIGN_OR_RETURN(const Value value, evaluator_.Evaluate(*stmt.expr));
      BATON_RETURN_IF_ERROR(Write(value));
      return Flow::kNext;
    }
    case Stmt::Kind::kIf:
      return RunIf(stmt);
    case Stmt::Kind::kFor:
      return RunFor(stmt);
    case Stmt::Kind::kSet:
    case Stmt::Kind::kSetAttribute:
    case Stmt::Kind::kSetBody:
      BATON_RETURN_IF_ERROR(RunSet(stmt));
      return Flow::kNext;
    case Stmt::Kind::kMacro:
      scopes_.Set(stmt.macro->name, Value(stmt.macro.get()));
      return Flow::kNext;
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
    case Stmt::Kind::kGroup:
      break;
  }
  return RunBody(stmt.branches[0].body);
}

absl::StatusOr<Flow> Interpreter::RunIf(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (branch.condition == nullptr) return RunBody(branch.body);
    BATON_ASSIGN_OR_RETURN(const Value condition, evaluator_.Evaluate(*branch.condition));
    if (condition.Truthy()) return RunBody(branch.body);
  }
  return Flow::kNext;
}

// The items the loop walks: a filter decides before the loop begins, so that loop.last is right.
absl::StatusOr<Value> Interpreter::FilteredItems(const Stmt& stmt) {
  BATON_ASSIGN_OR_RETURN(const Value iterable, evaluator_.Evaluate(*stmt.expr));
  absl::StatusOr<Value> items = ItemsOf(iterable, &budget_);
  if (!items.ok() && items.status().code() == absl::StatusCode::kFailedPrecondition) {
    return TemplateError(stmt.line, std::string(items.status().message()));
  }
  if (!items.ok() || stmt.filter == nullptr) return items;
  List kept;
  Scopes::Scope scope(&scopes_, false);
  for (const Value& item : items->list()) {
    scope.Clear();
    BATON_RETURN_IF_ERROR(Assign(stmt, item));
    BATON_ASSIGN_OR_RETURN(const Value keep, evaluator_.Evaluate(*stmt.filter));
    if (keep.Truthy()) kept.push_back(item);
  }
  return Value(std::move(kept));
}

absl::StatusOr<Flow> Interpreter::RunFor(const Stmt& stmt) {
  BATON_ASSIGN_OR_RETURN(const Value items, FilteredItems(stmt));
  if (items.list().empty()) {
    return stmt.branches.size() > 1 ? RunBody(stmt.branches[1].body) : Flow::kNext;
  }
  Loop loop{&items.list()};
  Scopes::Scope scope(&scopes_, false);
  for (; loop.index < items.list().size(); ++loop.index) {
    scope.Clear();
    scopes_.Set("loop", Value(&loop));
    BATON_RETURN_IF_ERROR(Assign(stmt, items.list()[loop.index]));
    BATON_ASSIGN_OR_RETURN(const Flow flow, RunBody(stmt.branches[0].body));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

absl::Status Interpreter::Assign(const Stmt& stmt, const Value& value) {
  if (stmt.targets.size() == 1) {
    scopes_.Set(stmt.targets[0], value);
    return absl::OkStatus();
  }
  if (!value.IsList() || value.list().size() != stmt.targets.size()) {
    return TemplateError(stmt.line, "a " + std::string(value.KindName()) + " does not give " +
                                        std::to_string(stmt.targets.size()) + " values");
  }
  for (size_t i = 0; i < stmt.targets.size(); ++i) scopes_.Set(stmt.targets[i], value.list()[i]);
  return absl::OkStatus();
}

absl::Status Interpreter::RunSet(const Stmt& stmt) {
  if (stmt.kind == Stmt::Kind::kSetAttribute) return RunSetAttribute(stmt);
  if (stmt.kind == Stmt::Kind::kSetBody) {
    BATON_ASSIGN_OR_RETURN(const Value captured, Capture(stmt.branches[0].body));
    return Assign(stmt, captured);
  }
  BATON_ASSIGN_OR_RETURN(const Value value, evaluator_.Evaluate(*stmt.expr));
  return Assign(stmt, value);
}

absl::Status Interpreter::RunSetAttribute(const Stmt& stmt) {
  BATON_ASSIGN_OR_RETURN(Value value, evaluator_.Evaluate(*stmt.expr));
  Namespace* ns = scopes_.Get(stmt.targets[0]).AsNamespace();
  if (ns == nullptr) return TemplateError(stmt.line, "'" + stmt.targets[0] + "' is no namespace");
  if (!value.IsPlain()) {
    return TemplateError(stmt.line, "keeping a " + std::string(value.KindName()) +
                                        " in a namespace is not supported");
  }
  for (auto& entry : ns->entries) {
    if (entry.first.bytes() != stmt.targets[1]) continue;
    entry.second = std::move(value);
    return absl::OkStatus();
  }
  ns->entries.emplace_back(Text(stmt.targets[1], false), std::move(value));
  return absl::OkStatus();
}

absl::Status Interpreter::BindParameters(const MacroNode& macro, const Call& call) {
  if (call.positional.size() > macro.parameters.size()) {
    return CannotRender("macro '" + macro.name + "' with " +
                        std::to_string(call.positional.size()) + " arguments is not supported");
  }
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    Value value = Value::MakeUndefined(macro.parameters[i]);
    if (const Value* given = call.Get(i, macro.parameters[i]); given != nullptr) {
      value = *given;
    } else if (macro.defaults[i] != nullptr) {
      BATON_ASSIGN_OR_RETURN(value, evaluator_.Evaluate(*macro.defaults[i]));
    }
    scopes_.Set(macro.parameters[i], std::move(value));
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::RunMacro(const MacroNode& macro, const Call& call) {
  if (macro_depth_ == kMaxMacroDepth) {
    return CannotRender("macros nested deeper than " + std::to_string(kMaxMacroDepth) +
                        " are not supported");
  }
  ++macro_depth_;
  absl::StatusOr<Value> result;
  {
    const Scopes::Scope scope(&scopes_, true);
    const absl::Status bound = BindParameters(macro, call);
    result = bound.ok() ? Capture(macro.body) : absl::StatusOr<Value>(bound);
  }
  --macro_depth_;
  return result;
}

}  // namespace

absl::StatusOr<Text> Render(const Program& program, const Map& variables, int64_t now_unix_s,
                            const RenderLimits& limits) {
  return Interpreter(variables, now_unix_s, limits).Run(program.body);
}

}  // namespace baton::jinja
