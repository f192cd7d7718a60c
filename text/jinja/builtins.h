// Filters, tests, methods and functions of the subset. Each takes a call whose arguments are
// evaluated.
#ifndef BATON_TEXT_JINJA_BUILTINS_H_
#define BATON_TEXT_JINJA_BUILTINS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/jinja/budget.h"
#include "text/jinja/call.h"
#include "text/jinja/value.h"

namespace baton::jinja {

// `input` | call
absl::StatusOr<Value> ApplyFilter(const Value& input, const Call& call, Budget* budget);

// `input` is call
absl::StatusOr<bool> ApplyTest(const Value& input, const Call& call, Budget* budget);

// `object` . call
absl::StatusOr<Value> CallMethod(const Value& object, const Call& call, Budget* budget);

// Functions without state; raise_exception is INVALID_ARGUMENT with the template's message.
// `namespace` is the evaluator's.
absl::StatusOr<Value> CallFunction(const Call& call, int64_t now_unix_s, Budget* budget);

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_BUILTINS_H_
