#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "common/checked.h"
#include "common/status_macros.h"
#include "text/jinja/call.h"
#include "text/jinja/loop.h"
#include "text/jinja/strings.h"

namespace baton::jinja {
namespace {

std::string Describe(const Value& value) {
  if (value.IsUndefined()) return "undefined '" + value.undefined_name() + "'";
  return std::string(value.KindName());
}

absl::Status Impossible(std::string_view op, const Value& left, const Value& right) {
  return CannotRender("'" + std::string(op) + "' of " + Describe(left) + " and " + Describe(right) +
                      " is not possible");
}

absl::StatusOr<Value> Concatenate(const Value& left, const Value& right, Budget* budget) {
  BATON_RETURN_IF_ERROR(budget->SpendText(left.weight() + right.weight()));
  Text joined = left.ToText();
  joined.Append(right.IsText() ? right.text() : right.ToText());
  return Value(std::move(joined));
}

absl::StatusOr<Value> ConcatenateLists(const List& left, const List& right, Budget* budget) {
  BATON_RETURN_IF_ERROR(budget->SpendText((left.size() + right.size()) * Value::kNodeWeight));
  List joined = left;
  joined.insert(joined.end(), right.begin(), right.end());
  return Value(std::move(joined));
}

absl::StatusOr<Value> Repeat(const Text& text, int64_t count, Budget* budget) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  const auto bytes = CheckedMul<uint64_t>(times, text.size());
  const auto size = bytes.has_value() ? CheckedCast<size_t>(*bytes) : std::nullopt;
  BATON_RETURN_IF_ERROR(budget->SpendText(size.value_or(SIZE_MAX)));
  Text repeated;
  if (text.empty()) return Value(std::move(repeated));
  BATON_RETURN_IF_ERROR(budget->Spend(times));
  for (uint64_t i = 0; i < times; ++i) repeated.Append(text);
  return Value(std::move(repeated));
}

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

std::optional<int64_t> Power(int64_t base, int64_t exponent) {
  std::optional<int64_t> result = 1;
  if (exponent > 64 && (base > 1 || base < -1)) return std::nullopt;
  for (int64_t i = 0; i < std::min<int64_t>(exponent, 64 + exponent % 2) && result; ++i) {
    result = CheckedMul(*result, base);
  }
  return result;
}

absl::StatusOr<Value> IntegerArithmetic(std::string_view op, const Value& left,
                                        const Value& right) {
  const int64_t a = left.integer();
  const int64_t b = right.integer();
  std::optional<int64_t> result;
  if (op == "+") result = CheckedAdd(a, b);
  if (op == "-" && b != INT64_MIN) result = CheckedAdd(a, -b);
  if (op == "*") result = CheckedMul(a, b);
  if (op == "**" && b >= 0) result = Power(a, b);
  if (op == "//" || op == "%") {
    if (b == 0) return CannotRender("division by zero");
    if (b == -1 && a == INT64_MIN) return CannotRender("integer overflow");
    result = op == "//" ? FloorDivide(a, b) : a - b * FloorDivide(a, b);
  }
  if (!result.has_value()) return CannotRender("integer overflow");
  return Value(*result);
}

absl::StatusOr<Value> Arithmetic(std::string_view op, const Value& left, const Value& right) {
  const bool integers = left.IsInteger() && right.IsInteger();
  if (integers && op != "/" && !(op == "**" && right.integer() < 0)) {
    return IntegerArithmetic(op, left, right);
  }
  const double a = left.number();
  const double b = right.number();
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return Value(std::pow(a, b));
  if (b == 0) return CannotRender("division by zero");
  if (op == "/") return Value(a / b);
  if (op == "//") return Value(std::floor(a / b));
  return Value(a - b * std::floor(a / b));
}

template <typename T>
bool Ordered(std::string_view op, const T& a, const T& b) {
  if (op == "<") return a < b;
  if (op == "<=") return a <= b;
  if (op == ">") return a > b;
  return a >= b;
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item) {
  if (container.IsUndefined()) return false;
  if (container.IsText() && item.IsText()) {
    return container.text().bytes().find(item.text().bytes()) != std::string::npos;
  }
  if (container.IsMap()) {
    return item.IsText() && container.Find(item.text().bytes()) != nullptr;
  }
  if (!container.IsList()) return Impossible("in", item, container);
  const List& list = container.list();
  return std::any_of(list.begin(), list.end(),
                     [&item](const Value& other) { return Equal(item, other); });
}

struct Bounds {
  int64_t start;
  int64_t stop;
  int64_t step;
};

absl::StatusOr<std::optional<int64_t>> BoundOf(const Value& value) {
  if (value.IsNone()) return std::optional<int64_t>();
  if (!value.IsInteger()) return CannotRender("slice bound is " + Describe(value));
  return std::optional<int64_t>(value.integer());
}

// As Python's slice.indices().
absl::StatusOr<Bounds> BoundsOf(const Value& start, const Value& stop, const Value& step,
                                int64_t length) {
  BATON_ASSIGN_OR_RETURN(const auto from, BoundOf(start));
  BATON_ASSIGN_OR_RETURN(const auto to, BoundOf(stop));
  BATON_ASSIGN_OR_RETURN(const auto by, BoundOf(step));
  Bounds bounds;
  bounds.step = by.value_or(1);
  if (bounds.step == 0 || bounds.step == INT64_MIN) return CannotRender("slice step is 0");
  const bool forward = bounds.step > 0;
  const int64_t lowest = forward ? 0 : -1;
  const int64_t highest = forward ? length : length - 1;
  const auto clamp = [&](int64_t index) {
    return std::clamp(index < 0 ? index + length : index, lowest, highest);
  };
  bounds.start = from.has_value() ? clamp(*from) : forward ? lowest : highest;
  bounds.stop = to.has_value() ? clamp(*to) : forward ? highest : lowest;
  return bounds;
}

List SliceList(const List& list, const Bounds& bounds) {
  List out;
  const auto before_stop = [&bounds](int64_t at) {
    return bounds.step > 0 ? at < bounds.stop : at > bounds.stop;
  };
  const auto length = static_cast<int64_t>(list.size());
  for (int64_t at = bounds.start; before_stop(at); at += bounds.step) {
    out.push_back(list[static_cast<size_t>(at)]);
    if (bounds.step > length || bounds.step < -length) break;  // the next one would overflow
  }
  return out;
}

}  // namespace

absl::StatusOr<Value> ApplyBinary(std::string_view op, const Value& left, const Value& right,
                                  Budget* budget) {
  if (op == "~") return Concatenate(left, right, budget);
  if (left.IsNumber() && right.IsNumber()) return Arithmetic(op, left, right);
  if (op == "+" && left.IsText() && right.IsText()) return Concatenate(left, right, budget);
  if (op == "+" && left.IsList() && right.IsList()) {
    return ConcatenateLists(left.list(), right.list(), budget);
  }
  if (op == "*" && left.IsText() && right.IsInteger()) {
    return Repeat(left.text(), right.integer(), budget);
  }
  if (op == "*" && left.IsInteger() && right.IsText()) {
    return Repeat(right.text(), left.integer(), budget);
  }
  return Impossible(op, left, right);
}

absl::StatusOr<Value> Negate(const Value& operand) {
  if (operand.IsFloat()) return Value(-operand.number());
  if (!operand.IsInteger() || operand.integer() == INT64_MIN) {
    return CannotRender("'-' of " + Describe(operand) + " is not possible");
  }
  return Value(-operand.integer());
}

absl::StatusOr<bool> ApplyComparison(std::string_view op, const Value& left, const Value& right,
                                     Budget* budget) {
  BATON_RETURN_IF_ERROR(budget->Spend(1 + std::max(left.weight(), right.weight()) / 64));
  if (op == "==") return Equal(left, right);
  if (op == "!=") return !Equal(left, right);
  if (op == "in" || op == "not in") {
    BATON_ASSIGN_OR_RETURN(const bool contains, Contains(right, left));
    return contains == (op == "in");
  }
  if (left.IsInteger() && right.IsInteger()) return Ordered(op, left.integer(), right.integer());
  if (left.IsNumber() && right.IsNumber()) return Ordered(op, left.number(), right.number());
  if (left.IsText() && right.IsText()) {
    return Ordered(op, left.text().bytes(), right.text().bytes());
  }
  return Impossible(op, left, right);
}

absl::StatusOr<Value> GetAttribute(const Value& object, std::string_view name) {
  if (object.IsUndefined()) {
    return CannotRender("'" + object.undefined_name() + "' is undefined, it has no '" +
                        std::string(name) + "'");
  }
  if (const Loop* loop = object.AsLoop(); loop != nullptr) return loop->Attribute(name);
  if (const Namespace* ns = object.AsNamespace(); ns != nullptr) {
    for (const auto& entry : ns->entries) {
      if (entry.first.bytes() == name) return entry.second;
    }
  }
  const Value* found = object.Find(name);
  return found == nullptr ? Value::MakeUndefined(name) : *found;
}

absl::StatusOr<Value> GetItem(const Value& object, const Value& key, Budget* budget) {
  if (key.IsText()) return GetAttribute(object, key.text().bytes());
  if (object.IsUndefined()) return GetAttribute(object, "item");
  if (!key.IsInteger()) return Value::MakeUndefined("item");
  const bool is_text = object.IsText();
  if (is_text) BATON_RETURN_IF_ERROR(budget->SpendText(object.weight()));
  if (!is_text && !object.IsList()) return Value::MakeUndefined("item");
  const List characters = is_text ? Characters(object.text()) : List();
  const List& list = is_text ? characters : object.list();
  const auto length = static_cast<int64_t>(list.size());
  const int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
  if (index < 0 || index >= length) return Value::MakeUndefined("item");
  return list[static_cast<size_t>(index)];
}

absl::StatusOr<Value> GetSlice(const Value& object, const Value& start, const Value& stop,
                               const Value& step, Budget* budget) {
  if (!object.IsText() && !object.IsList()) {
    return CannotRender("slice of " + Describe(object) + " is not possible");
  }
  BATON_ASSIGN_OR_RETURN(const Value items, ItemsOf(object, budget));
  BATON_ASSIGN_OR_RETURN(const Bounds bounds,
                         BoundsOf(start, stop, step, static_cast<int64_t>(items.list().size())));
  List part = SliceList(items.list(), bounds);
  if (object.IsList()) return Value(std::move(part));
  BATON_ASSIGN_OR_RETURN(Text joined, Join(part, Text(), budget));
  return Value(std::move(joined));
}

absl::StatusOr<Value> ItemsOf(const Value& value, Budget* budget) {
  if (value.IsUndefined()) return Value(List());
  if (value.IsText()) {
    BATON_RETURN_IF_ERROR(budget->Spend(value.text().size()));
    return Value(Characters(value.text()));
  }
  if (value.IsList()) {
    BATON_RETURN_IF_ERROR(budget->Spend(value.list().size()));
    return value;
  }
  if (!value.IsMap()) return CannotRender(Describe(value) + " is no list");
  BATON_RETURN_IF_ERROR(budget->Spend(value.map().size()));
  List keys;
  for (const auto& entry : value.map()) keys.emplace_back(entry.first);
  return Value(std::move(keys));
}

}  // namespace baton::jinja
