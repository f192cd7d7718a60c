#include "engine/step_rates.h"

#include <algorithm>

#include "engine/scheduler.h"

namespace baton::engine {

namespace {

constexpr double kNewest = 0.2;  // weight of the newest step

void Average(double& average, double value) {
  average = average == 0 ? value : average + kNewest * (value - average);
}

}  // namespace

void StepRates::Record(uint32_t prefill_tokens, uint32_t decode_rows, Duration took) {
  const bool mixed = prefill_tokens > 0 && decode_rows > 0;
  if (mixed) ++mixed_steps_;
  if (prefill_tokens == 0) mixed_steps_ = 0;
  const double seconds = ToSeconds(took);
  if (seconds <= 0) return;
  if (prefill_tokens > 0) {
    Average(prefill_tokens_per_second_, prefill_tokens / seconds);
  } else if (decode_rows > 0) {
    Average(decode_step_seconds_, seconds);
  }
  if (mixed && decode_step_seconds_ > 0) {
    Average(beside_seconds_, std::max(0.0, seconds - decode_step_seconds_) / prefill_tokens);
  }
}

double StepRates::TokenSeconds() const {
  if (beside_seconds_ > 0) return beside_seconds_;
  return prefill_tokens_per_second_ > 0 ? 1 / prefill_tokens_per_second_ : 0;
}

uint32_t StepRates::PrefillBesideDecodes(uint32_t step_tokens) const {
  if (mixed_steps_ >= kMixedSteps) return 0;
  const double token = TokenSeconds();
  const double most = step_tokens;
  const double fit = token > 0 ? (kStretch - 1) * decode_step_seconds_ / token : most;
  return std::max(LeastPrefill(step_tokens), static_cast<uint32_t>(std::min(fit, most)));
}

}  // namespace baton::engine
