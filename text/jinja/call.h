// A call of a filter, test, method or function, its arguments evaluated.
#ifndef BATON_TEXT_JINJA_CALL_H_
#define BATON_TEXT_JINJA_CALL_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace baton::jinja {

// A template that does what the subset cannot follow; the evaluator adds the line.
inline absl::Status CannotRender(std::string_view what) {
  return absl::FailedPreconditionError(std::string(what));
}

struct Call {
  std::string_view name;
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;

  // The argument at `index` or called `parameter`; nullptr when it is not given.
  const Value* Get(size_t index, std::string_view parameter) const {
    if (index < positional.size()) return &positional[index];
    for (const auto& argument : named) {
      if (argument.first == parameter) return &argument.second;
    }
    return nullptr;
  }

  // Refuses arguments beyond `parameters`, so that none is silently ignored.
  absl::Status Accept(std::initializer_list<std::string_view> parameters) const {
    if (positional.size() > parameters.size()) {
      return CannotRender("'" + std::string(name) + "' with " + std::to_string(positional.size()) +
                          " arguments is not supported");
    }
    for (const auto& argument : named) {
      if (std::find(parameters.begin(), parameters.end(), argument.first) == parameters.end()) {
        return CannotRender("argument '" + std::string(argument.first) + "' of '" +
                            std::string(name) + "' is not supported");
      }
    }
    return absl::OkStatus();
  }

  absl::Status WrongKind(const Value& value) const {
    return CannotRender("'" + std::string(name) + "' of " + std::string(value.KindName()) +
                        (value.IsUndefined() ? " '" + value.undefined_name() + "'" : "") +
                        " is not possible");
  }

  // The text argument; INVALID kinds are an error, absence gives `fallback`.
  absl::StatusOr<Text> TextOr(size_t index, std::string_view parameter, Text fallback) const {
    const Value* value = Get(index, parameter);
    if (value == nullptr) return fallback;
    if (!value->IsText()) return WrongKind(*value);
    return value->text();
  }
  absl::StatusOr<int64_t> IntegerOr(size_t index, std::string_view parameter,
                                    int64_t fallback) const {
    const Value* value = Get(index, parameter);
    if (value == nullptr) return fallback;
    if (!value->IsInteger()) return WrongKind(*value);
    return value->integer();
  }
};

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_CALL_H_
