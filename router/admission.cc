#include "router/admission.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>

#include "router/error_reasons.h"
#include "router/status_details.h"

namespace baton::router {
namespace {

std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", seconds);
  return text;
}

// Prefill workers, or decode workers while none of those has measured itself.
template <typename Call>
void ForEachThatRunsPrompts(const std::vector<const WorkerView*>& workers, const Call& call) {
  const auto measured = [](const WorkerView& worker, bool prefill) {
    return worker.ready && !worker.draining && !worker.shunned && worker.prefill == prefill &&
           worker.prefill_tokens_per_second > 0;
  };
  const bool prefill = std::any_of(workers.begin(), workers.end(),
                                   [&](const WorkerView* w) { return measured(*w, true); });
  for (const WorkerView* worker : workers) {
    if (measured(*worker, prefill)) call(*worker);
  }
}

}  // namespace

Admission::Admission(const CoreOptions& options, const Executor& executor, CoreMetrics& metrics,
                     const std::vector<const WorkerView*>& workers)
    : options_(options),
      executor_(executor),
      metrics_(metrics),
      workers_(workers),
      tenants_(options.max_idle_tenants) {}

absl::Status Admission::Room(uint64_t prompt_tokens) const {
  std::string full;
  if (queue_.requests() >= options_.max_queue) {
    full = std::to_string(options_.max_queue) + " requests wait (max_queue)";
  } else if (queue_.requests() > 0 &&
             prompt_tokens + queue_.prompt_tokens() > options_.max_queue_tokens) {
    full = std::to_string(queue_.prompt_tokens()) + " prompt tokens wait, with this prompt " +
           std::to_string(prompt_tokens) + " more; at most " +
           std::to_string(options_.max_queue_tokens) + " (max_queue_tokens)";
  } else {
    return absl::OkStatus();
  }
  return RetryLater("the queue is full: " + full, kReasonQueueFull,
                    static_cast<double>(queue_.prompt_tokens()));
}

absl::Status Admission::InTime(const RequestSpec& spec, uint64_t cached_tokens) const {
  double limit = std::numeric_limits<double>::infinity();
  if (spec.deadline.has_value()) limit = ToSeconds(*spec.deadline - spec.arrived);
  if (options_.ttft_target > Duration{0}) limit = std::min(limit, ToSeconds(options_.ttft_target));
  if (std::isinf(limit)) return absl::OkStatus();
  const std::optional<double> rate = PromptTokensPerSecond();
  const uint64_t ahead = queue_.TokensBefore(Queued(0, spec)) + tokenless_tokens_;
  if (ahead == 0 || !rate.has_value()) return absl::OkStatus();
  const double predicted = ToSeconds(executor_.Now() - spec.arrived) +
                           static_cast<double>(ahead) / *rate +
                           PromptSeconds(cached_tokens, spec.prompt.size(), *rate);
  if (predicted <= limit) return absl::OkStatus();
  return RetryLater("the first token is predicted after " + Seconds(predicted) +
                        "; the deadline or ttft_target leaves " + Seconds(limit),
                    kReasonTooLate, (predicted - limit) * *rate);
}

double Admission::PromptSeconds(uint64_t begin, uint64_t end, double queue_rate) const {
  std::optional<double> fastest;
  ForEachThatRunsPrompts(workers_, [&](const WorkerView& worker) {
    const double seconds = worker.PromptSeconds(begin, end, worker.prefill_tokens_per_second);
    fastest = std::min(seconds, fastest.value_or(seconds));
  });
  return std::max(fastest.value_or(0), static_cast<double>(end - begin) / queue_rate);
}

absl::Status Admission::RetryLater(const std::string& text, const char* reason,
                                   double tokens) const {
  const std::optional<double> rate = PromptTokensPerSecond();
  Duration delay = options_.retry_max;
  if (rate.has_value()) {
    const double seconds = std::min(tokens / *rate, ToSeconds(options_.refusal_max));
    delay = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }
  return WithRetryInfo(ErrorWithReason(absl::StatusCode::kResourceExhausted, text, reason),
                       std::max(delay, options_.refusal_min));
}

std::optional<double> Admission::PromptTokensPerSecond() const {
  const std::optional<double> drain = drain_.TokensPerSecond(executor_.Now());
  if (drain.has_value()) return drain;
  double rate = 0;
  ForEachThatRunsPrompts(
      workers_, [&](const WorkerView& worker) { rate += worker.prefill_tokens_per_second; });
  return rate > 0 ? std::optional(rate) : std::nullopt;
}

QueuedRequest Admission::Queued(uint64_t number, const RequestSpec& spec) const {
  return {number, spec.tenant, spec.arrived - options_.age_credit * spec.priority,
          spec.prompt.size()};
}

void Admission::Enter(const RequestFlow& flow) { tenants_.Hold(flow.spec().tenant); }

void Admission::Admit(const RequestFlow& flow) {
  queue_.Add(Queued(flow.number(), flow.spec()));
  NoteQueue();
}

void Admission::Pause(const RequestFlow& flow) {
  NoLongerTokenless(flow);
  queue_.Pause(Queued(flow.number(), flow.spec()));
  NoteQueue();
}

void Admission::Resume(uint64_t number) { queue_.Resume(number); }

void Admission::Submitted(const RequestFlow& flow) {
  const RequestSpec& spec = flow.spec();
  queue_.Remove(flow.number());
  NoteQueue();
  if (flow.attempts() == 0) {
    tenants_.Charge(spec.tenant, spec.prompt.size());
    metrics_.queue_seconds.With({std::to_string(spec.priority)})
        .Observe(ToSeconds(executor_.Now() - spec.arrived));
  }
  if (flow.delivered() == 0 && tokenless_.insert(flow.number()).second) {
    tokenless_tokens_ += spec.prompt.size();
  }
}

void Admission::TokenDelivered(const RequestFlow& flow) {
  const RequestSpec& spec = flow.spec();
  if (flow.delivered() == 1) {
    NoLongerTokenless(flow);
    drain_.OnFirstToken(executor_.Now(), spec.prompt.size());
  }
  tenants_.Charge(spec.tenant, options_.output_token_weight);
}

void Admission::Leave(const RequestFlow& flow) {
  NoLongerTokenless(flow);
  queue_.Remove(flow.number());
  tenants_.Release(flow.spec().tenant);
  NoteQueue();
}

void Admission::Clear() {
  queue_.Clear();
  NoteQueue();
}

void Admission::NoteQueue() {
  drain_.SetWaiting(executor_.Now(), queue_.requests() > 0);
  metrics_.waiting.Set(static_cast<double>(queue_.requests()));
  metrics_.queue_tokens.Set(static_cast<double>(queue_.prompt_tokens()));
}

void Admission::NoLongerTokenless(const RequestFlow& flow) {
  if (tokenless_.erase(flow.number()) > 0) tokenless_tokens_ -= flow.spec().prompt.size();
}

}  // namespace baton::router
