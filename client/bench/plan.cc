#include "client/bench/plan.h"

#include <algorithm>
#include <cmath>

#include "common/status_macros.h"

namespace baton::client {
namespace {

// Times, lengths and prompts are drawn apart, so that changing one leaves the others as they were.
SeededRandom Draws(uint64_t seed, uint64_t purpose) {
  return SeededRandom(SeededRandom(seed ^ (purpose << 56)).Next64());
}

absl::Status Check(const PlanOptions& options, const Trace* trace) {
  const auto bad = [](const char* text) { return absl::InvalidArgumentError(text); };
  const bool times_of_trace = !options.concurrency.has_value() && !options.rate.has_value();
  if (options.concurrency.has_value() && options.rate.has_value()) {
    return bad("--concurrency and --rate: give one of them");
  }
  if (times_of_trace && trace == nullptr) {
    return bad("give one of --concurrency, --rate and --trace");
  }
  if (times_of_trace && !trace->timed) {
    return bad("--trace: has no times; give --rate or --concurrency too");
  }
  if (!times_of_trace && trace != nullptr && trace->timed && options.rate.has_value()) {
    return bad("--rate and --trace: the trace has times of its own; give one of them");
  }
  if (times_of_trace && options.requests.value_or(0) > trace->rows.size()) {
    return bad("--requests: must not be more than the trace has");
  }
  if (trace == nullptr && !options.requests.has_value()) return bad("--requests: missing");
  return absl::OkStatus();
}

// The request's lengths, cut; counts it when it was.
void SetLengths(const PlanOptions& options, uint32_t prompt, uint32_t output, PlannedRequest& out,
                size_t& cut) {
  out.prompt_tokens = std::min({prompt, options.max_prompt_tokens, options.context - 1});
  out.output_tokens =
      std::min({output, options.max_output_tokens, options.context - out.prompt_tokens});
  if (out.prompt_tokens != prompt || out.output_tokens != output) ++cut;
}

void SetTimes(const PlanOptions& options, const Trace* trace, Plan& plan) {
  if (options.concurrency.has_value()) return;
  SeededRandom random = Draws(options.seed, 1);
  double at = 0;
  for (size_t i = 0; i < plan.requests.size(); ++i) {
    if (options.rate.has_value()) {
      at += -std::log(1 - random.Unit()) / *options.rate;
    } else {
      const double since_first = trace->rows[i].at_seconds - trace->rows[0].at_seconds;
      at = (since_first + random.Unit() * options.jitter) / options.speed;
    }
    plan.requests[i].at_seconds = at;
  }
  std::stable_sort(
      plan.requests.begin(), plan.requests.end(),
      [](const PlannedRequest& a, const PlannedRequest& b) { return a.at_seconds < b.at_seconds; });
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const PlanOptions& options, const Trace* trace) {
  BATON_RETURN_IF_ERROR(Check(options, trace));
  Plan plan;
  plan.requests.resize(options.requests.value_or(trace == nullptr ? 0 : trace->rows.size()));
  SeededRandom random = Draws(options.seed, 2);
  for (size_t i = 0; i < plan.requests.size(); ++i) {
    const TraceRow row = trace == nullptr ? TraceRow{} : trace->rows[i % trace->rows.size()];
    const uint32_t prompt =
        options.prompt_tokens.has_value() ? options.prompt_tokens->Draw(random) : row.prompt_tokens;
    const uint32_t output =
        options.output_tokens.has_value() ? options.output_tokens->Draw(random) : row.output_tokens;
    if (prompt == 0 || output == 0) {
      return absl::InvalidArgumentError("--prompt-tokens and --output-tokens: missing");
    }
    SetLengths(options, prompt, output, plan.requests[i], plan.cut);
  }
  SetTimes(options, trace, plan);
  return plan;
}

std::vector<int32_t> MakePrompt(uint64_t seed, size_t index, uint32_t tokens, uint32_t vocabulary) {
  SeededRandom random = Draws(seed + index, 3);
  std::vector<int32_t> ids(tokens);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(vocabulary));
  return ids;
}

}  // namespace baton::client
