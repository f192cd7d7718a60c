// Operators, attributes, items and slices, with the meaning they have in Python.
#ifndef BATON_TEXT_JINJA_OPERATORS_H_
#define BATON_TEXT_JINJA_OPERATORS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace baton::jinja {

// + - * / // % ** ~
absl::StatusOr<Value> ApplyBinary(std::string_view op, const Value& left, const Value& right,
                                  Budget* budget);
absl::StatusOr<Value> Negate(const Value& operand);

// == != < <= > >= in "not in"
absl::StatusOr<bool> ApplyComparison(std::string_view op, const Value& left, const Value& right,
                                     Budget* budget);

// Undefined when it has none; an error for anything of an undefined value.
absl::StatusOr<Value> GetAttribute(const Value& object, std::string_view name);
absl::StatusOr<Value> GetItem(const Value& object, const Value& key, Budget* budget);
// Bounds may be none.
absl::StatusOr<Value> GetSlice(const Value& object, const Value& start, const Value& stop,
                               const Value& step, Budget* budget);

// What a `for` walks: items of a list, keys of a mapping, characters of a text, nothing of an
// undefined value.
absl::StatusOr<Value> ItemsOf(const Value& value, Budget* budget);

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_OPERATORS_H_
