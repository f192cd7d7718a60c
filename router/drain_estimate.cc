#include "router/drain_estimate.h"

#include <chrono>
#include <cmath>

namespace baton::router {
namespace {

constexpr double kFadeSeconds = 10;  // to 1/e
constexpr uint64_t kFewestSamples = 4;
constexpr double kFewestSeconds = 0.25;  // of waiting, after fading
constexpr Duration kForgetAfter = std::chrono::seconds(60);

}  // namespace

void DrainEstimate::Pass(Time now) {
  // All time fades: where somebody waits only now and then, a stall would be remembered for hours.
  const double passed = ToSeconds(now - updated_);
  const double fade = std::exp(-passed / kFadeSeconds);
  tokens_ *= fade;
  seconds_ *= fade;
  if (waiting_) seconds_ += passed;
  updated_ = now;
}

void DrainEstimate::SetWaiting(Time now, bool waiting) {
  if (waiting == waiting_) return;
  if (waiting && now - updated_ > kForgetAfter) tokens_ = seconds_ = 0, samples_ = 0;
  Pass(now);
  waiting_ = waiting;
}

void DrainEstimate::OnFirstToken(Time now, uint64_t prompt_tokens) {
  if (!waiting_) return;
  Pass(now);
  tokens_ += static_cast<double>(prompt_tokens);
  ++samples_;
}

std::optional<double> DrainEstimate::TokensPerSecond(Time now) const {
  if (samples_ < kFewestSamples || (!waiting_ && now - updated_ > kForgetAfter)) {
    return std::nullopt;
  }
  DrainEstimate at_now = *this;
  at_now.Pass(now);
  if (at_now.tokens_ <= 0 || at_now.seconds_ < kFewestSeconds) return std::nullopt;
  return at_now.tokens_ / at_now.seconds_;
}

}  // namespace baton::router
