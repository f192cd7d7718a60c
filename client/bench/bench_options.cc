#include "client/bench/bench_options.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <string_view>

#include "client/arguments.h"
#include "common/status_macros.h"

namespace baton::client {
namespace {

constexpr size_t kMaxRequests = 1'000'000;
constexpr uint64_t kMaxTimeoutMs = 86'400'000;

absl::Status Bad(const std::string& flag, const std::string& text, const std::string& limit) {
  return absl::InvalidArgumentError("--" + flag + " is " + text + "; " + limit);
}

std::optional<double> Number(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

// Absent: not given.
absl::StatusOr<std::optional<uint64_t>> Count(const Arguments& args, const std::string& flag,
                                              uint64_t most) {
  BATON_ASSIGN_OR_RETURN(const auto value, args.Unsigned(flag));
  if (value.has_value() && (*value < 1 || *value > most)) {
    return Bad(flag, args.Get(flag), "must be from 1 to " + std::to_string(most));
  }
  return value;
}

absl::StatusOr<std::optional<double>> Positive(const Arguments& args, const std::string& flag,
                                               double most) {
  if (!args.Has(flag)) return std::optional<double>();
  const std::optional<double> value = Number(args.Get(flag));
  if (value.has_value() && *value > 0 && *value <= most) return value;
  return Bad(flag, args.Get(flag),
             "must be above 0 and at most " + std::to_string(static_cast<int64_t>(most)));
}

absl::Status FillWhen(const Arguments& args, PlanOptions& plan) {
  BATON_ASSIGN_OR_RETURN(const auto concurrency, Count(args, "concurrency", 10'000));
  if (concurrency.has_value()) plan.concurrency = static_cast<uint32_t>(*concurrency);
  BATON_ASSIGN_OR_RETURN(plan.rate, Positive(args, "rate", 1e6));
  BATON_ASSIGN_OR_RETURN(const auto requests, Count(args, "requests", kMaxRequests));
  if (requests.has_value()) plan.requests = static_cast<size_t>(*requests);
  BATON_ASSIGN_OR_RETURN(const auto speed, Positive(args, "speed", 1e6));
  plan.speed = speed.value_or(1);
  BATON_ASSIGN_OR_RETURN(const auto jitter_ms, Positive(args, "jitter-ms", 1e6));
  plan.jitter = jitter_ms.value_or(0) / 1e3;
  for (const char* const flag : {"speed", "jitter-ms"}) {
    const bool own_times = plan.concurrency.has_value() || plan.rate.has_value();
    if (args.Has(flag) && (own_times || !args.Has("trace"))) {
      return Bad(flag, args.Get(flag), "needs the times of --trace");
    }
  }
  BATON_ASSIGN_OR_RETURN(const auto seed, args.Unsigned("seed"));
  plan.seed = seed.value_or(0);
  return absl::OkStatus();
}

absl::Status FillLengths(const Arguments& args, PlanOptions& plan) {
  for (const auto& [flag, lengths] : {std::pair{"prompt-tokens", &plan.prompt_tokens},
                                      std::pair{"output-tokens", &plan.output_tokens}}) {
    if (!args.Has(flag)) continue;
    BATON_ASSIGN_OR_RETURN(*lengths, ParseLengths(flag, args.Get(flag)));
  }
  BATON_ASSIGN_OR_RETURN(const auto max_prompt, Count(args, "max-prompt-tokens", kMaxLength));
  plan.max_prompt_tokens = static_cast<uint32_t>(max_prompt.value_or(kMaxLength));
  BATON_ASSIGN_OR_RETURN(const auto max_output, Count(args, "max-output-tokens", kMaxLength));
  plan.max_output_tokens = static_cast<uint32_t>(max_output.value_or(kMaxLength));
  return absl::OkStatus();
}

absl::Status FillHow(const Arguments& args, BenchOptions& out) {
  for (const auto& [flag, limit] :
       {std::pair{"ttft-limit", &out.limits.ttft}, std::pair{"itl-limit", &out.limits.itl}}) {
    if (!args.Has(flag)) continue;
    BATON_ASSIGN_OR_RETURN(*limit, ParseLimit(flag, args.Get(flag)));
  }
  BATON_ASSIGN_OR_RETURN(const auto temperature, args.Float("temperature"));
  out.temperature = temperature.value_or(0);
  BATON_ASSIGN_OR_RETURN(const auto timeout_ms, Count(args, "timeout-ms", kMaxTimeoutMs));
  if (timeout_ms.has_value()) out.timeout = std::chrono::milliseconds(*timeout_ms);
  BATON_ASSIGN_OR_RETURN(const auto connections, Count(args, "connections", 1000));
  out.connections = static_cast<size_t>(connections.value_or(out.connections));
  out.json = args.Has("json");
  out.progress = args.Has("progress");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<double> ParseLimit(const std::string& flag, const std::string& text) {
  std::string_view number = text;
  double unit = 1e-3;
  if (number.ends_with("ms")) {
    number.remove_suffix(2);
  } else if (number.ends_with("s")) {
    number.remove_suffix(1);
    unit = 1;
  }
  const std::optional<double> value = Number(number);
  if (!value.has_value() || *value <= 0) {
    return Bad(flag, text, "must be a time above 0, as in 250ms or 0.25s");
  }
  return *value * unit;
}

absl::StatusOr<BenchOptions> ParseBenchOptions(const std::vector<std::string>& argv) {
  BATON_ASSIGN_OR_RETURN(
      const Arguments args,
      Arguments::Parse(
          argv,
          {"target", "model", "concurrency", "requests", "rate", "trace", "speed", "jitter-ms",
           "seed", "prompt-tokens", "output-tokens", "max-prompt-tokens", "max-output-tokens",
           "temperature", "timeout-ms", "connections", "ttft-limit", "itl-limit"},
          {"json", "progress"}));
  BenchOptions out;
  out.target = args.Get("target");
  if (out.target.empty()) return absl::InvalidArgumentError("--target: missing");
  out.model = args.Get("model");
  BATON_RETURN_IF_ERROR(FillWhen(args, out.plan));
  BATON_RETURN_IF_ERROR(FillLengths(args, out.plan));
  BATON_RETURN_IF_ERROR(FillHow(args, out));
  out.trace_path = args.Get("trace");
  if (args.Has("trace")) {
    BATON_ASSIGN_OR_RETURN(out.trace, ReadTrace(out.trace_path));
  }
  // What is wrong with the plan is known before anything is asked of the target.
  const Trace* const trace = out.trace.has_value() ? &*out.trace : nullptr;
  BATON_RETURN_IF_ERROR(MakePlan(out.plan, trace).status());
  return out;
}

}  // namespace baton::client
