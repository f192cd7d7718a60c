#include <ctime>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "text/jinja/builtins.h"
#include "text/jinja/names.h"

namespace baton::jinja {
namespace {

absl::StatusOr<Value> RaiseException(const Call& call) {
  BATON_RETURN_IF_ERROR(call.Accept({"message"}));
  const Value* message = call.Get(0, "message");
  return absl::InvalidArgumentError("the chat template refuses the conversation: " +
                                    (message == nullptr ? "" : message->ToText().bytes()));
}

// In UTC and English. Only the codes that mean the same everywhere.
absl::StatusOr<Value> FormatNow(const Call& call, int64_t now_unix_s) {
  static constexpr std::string_view kCodes = "aAbBdHIjmMpSyY%";
  BATON_RETURN_IF_ERROR(call.Accept({"format"}));
  BATON_ASSIGN_OR_RETURN(const Text format, call.TextOr(0, "format", Text()));
  const std::time_t now = now_unix_s;
  std::tm utc{};
  if (gmtime_r(&now, &utc) == nullptr) return CannotRender("the date cannot be written");
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format.bytes()[i];
    if (c != '%') {
      out += c;
      continue;
    }
    const char code = ++i < format.size() ? format.bytes()[i] : '\0';
    if (kCodes.find(code) == std::string_view::npos) {
      return CannotRender("'strftime_now' with this format is not supported");
    }
    const char single[] = {'%', code, '\0'};
    char buffer[64];
    out.append(buffer, std::strftime(buffer, sizeof buffer, single, &utc));
  }
  return Value::Literal(out);
}

absl::StatusOr<Value> Range(const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({"start", "stop", "step"}));
  BATON_ASSIGN_OR_RETURN(const int64_t first, call.IntegerOr(0, "start", 0));
  BATON_ASSIGN_OR_RETURN(const int64_t second, call.IntegerOr(1, "stop", 0));
  BATON_ASSIGN_OR_RETURN(const int64_t step, call.IntegerOr(2, "step", 1));
  constexpr int64_t kMax = 1 << 20;
  for (const int64_t number : {first, second, step}) {
    if (number > kMax || number < -kMax) return CannotRender("'range' this long is not supported");
  }
  if (step == 0) return CannotRender("'range' with step 0");
  const bool only_stop = call.positional.size() == 1;
  const int64_t start = only_stop ? 0 : first;
  const int64_t stop = only_stop ? first : second;
  List numbers;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    BATON_RETURN_IF_ERROR(budget->Spend(1));
    numbers.emplace_back(i);
  }
  return Value(std::move(numbers));
}

absl::StatusOr<Value> Dict(const Call& call, Budget* budget) {
  if (!call.positional.empty()) return CannotRender("'dict' of a value is not supported");
  Map map;
  for (const auto& argument : call.named) {
    map.emplace_back(Text(std::string(argument.first), false), argument.second);
  }
  Value made(std::move(map));
  BATON_RETURN_IF_ERROR(budget->SpendValue(made));
  return made;
}

}  // namespace

bool IsKnownFunction(std::string_view name) {
  return name == "raise_exception" || name == "strftime_now" || name == "range" || name == "dict" ||
         name == "namespace";
}

absl::StatusOr<Value> CallFunction(const Call& call, int64_t now_unix_s, Budget* budget) {
  if (call.name == "raise_exception") return RaiseException(call);
  if (call.name == "strftime_now") return FormatNow(call, now_unix_s);
  if (call.name == "range") return Range(call, budget);
  if (call.name == "dict") return Dict(call, budget);
  return CannotRender("function '" + std::string(call.name) + "' is not supported");
}

}  // namespace baton::jinja
