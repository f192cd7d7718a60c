#include "engine/step_rates.h"

namespace baton::engine {

namespace {

constexpr double kNewest = 0.2;  // weight of the newest step

void Average(double& average, double value) {
  average = average == 0 ? value : average + kNewest * (value - average);
}

}  // namespace

void StepRates::Record(uint32_t prefill_tokens, uint32_t decode_rows, Duration took) {
  const double seconds = ToSeconds(took);
  if (seconds <= 0) return;
  // A mixed step counts as prefill: its decode rows ride along, which errs on the slow side.
  if (prefill_tokens > 0) {
    Average(prefill_tokens_per_second_, prefill_tokens / seconds);
  } else if (decode_rows > 0) {
    Average(decode_step_seconds_, seconds);
  }
}

}  // namespace baton::engine
