#ifndef BATON_TEXT_JINJA_JSON_H_
#define BATON_TEXT_JINJA_JSON_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace baton::jinja {

struct JsonStyle {
  std::optional<int64_t> indent;  // absent: one line
  bool ascii_only = false;
};

// As Python's json.dumps writes it, keys in their own order.
absl::StatusOr<Text> ToJson(const Value& value, const JsonStyle& style, Budget* budget);

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_JSON_H_
