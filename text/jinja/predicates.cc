#include <algorithm>
#include <string>

#include "common/status_macros.h"
#include "text/jinja/builtins.h"
#include "text/jinja/names.h"
#include "text/jinja/operators.h"

namespace baton::jinja {
namespace {

// Tests without arguments.
struct KindTest {
  std::string_view name;
  bool (*passes)(const Value& value);
};
constexpr KindTest kKindTests[] = {
    {"boolean", [](const Value& v) { return v.IsBool(); }},
    {"defined", [](const Value& v) { return !v.IsUndefined(); }},
    {"false", [](const Value& v) { return v.IsBool() && !v.boolean(); }},
    {"float", [](const Value& v) { return v.IsFloat(); }},
    {"integer", [](const Value& v) { return v.IsInt(); }},
    {"iterable",
     [](const Value& v) { return v.IsText() || v.IsList() || v.IsMap() || v.IsUndefined(); }},
    {"mapping", [](const Value& v) { return v.IsMap(); }},
    {"none", [](const Value& v) { return v.IsNone(); }},
    {"number", [](const Value& v) { return v.IsNumber(); }},
    {"sequence",
     [](const Value& v) { return v.IsText() || v.IsList() || v.IsMap() || v.IsUndefined(); }},
    {"string", [](const Value& v) { return v.IsText(); }},
    {"true", [](const Value& v) { return v.IsBool() && v.boolean(); }},
    {"undefined", [](const Value& v) { return v.IsUndefined(); }},
};

// Tests that are a comparison with their argument.
struct ComparisonTest {
  std::string_view name;
  std::string_view op;
};
constexpr ComparisonTest kComparisonTests[] = {
    {"eq", "=="}, {"equalto", "=="}, {"ge", ">="},      {"greaterthan", ">"}, {"gt", ">"},
    {"in", "in"}, {"le", "<="},      {"lessthan", "<"}, {"lt", "<"},          {"ne", "!="},
};

absl::StatusOr<bool> Divisible(const Value& input, const Call& call) {
  const bool by_argument = call.name == "divisibleby";
  BATON_RETURN_IF_ERROR(by_argument ? call.Accept({"num"}) : call.Accept({}));
  BATON_ASSIGN_OR_RETURN(const int64_t divisor, call.IntegerOr(0, "num", 2));
  if (!input.IsInteger()) return call.WrongKind(input);
  if (divisor == 0) return CannotRender("division by zero");
  const bool divides = divisor == -1 || input.integer() % divisor == 0;
  return call.name == "odd" ? !divides : divides;
}

bool IsDivisibilityTest(std::string_view name) {
  return name == "even" || name == "odd" || name == "divisibleby";
}

template <typename Tests>
auto FindTest(const Tests& tests, std::string_view name) -> decltype(std::begin(tests)) {
  const auto found = std::find_if(std::begin(tests), std::end(tests),
                                  [name](const auto& test) { return test.name == name; });
  return found == std::end(tests) ? nullptr : found;
}

}  // namespace

bool IsKnownTest(std::string_view name) {
  return FindTest(kKindTests, name) != nullptr || FindTest(kComparisonTests, name) != nullptr ||
         IsDivisibilityTest(name);
}

absl::StatusOr<bool> ApplyTest(const Value& input, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(budget->Spend(1));
  if (const auto* test = FindTest(kKindTests, call.name); test != nullptr) {
    BATON_RETURN_IF_ERROR(call.Accept({}));
    return test->passes(input);
  }
  if (IsDivisibilityTest(call.name)) return Divisible(input, call);
  const auto* test = FindTest(kComparisonTests, call.name);
  if (test == nullptr || call.positional.size() != 1 || !call.named.empty()) {
    return CannotRender("test '" + std::string(call.name) + "' is not supported");
  }
  return ApplyComparison(test->op, input, call.positional[0], budget);
}

}  // namespace baton::jinja
