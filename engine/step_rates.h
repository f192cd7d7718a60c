// Measured speed of this worker's steps, for WorkerLoad and placement.
#ifndef BATON_ENGINE_STEP_RATES_H_
#define BATON_ENGINE_STEP_RATES_H_

#include <cstdint>

#include "common/time.h"

namespace baton::engine {

// Moving averages over the last steps; 0 until the first one of their kind.
class StepRates {
 public:
  void Record(uint32_t prefill_tokens, uint32_t decode_rows, Duration took);

  double prefill_tokens_per_second() const { return prefill_tokens_per_second_; }
  double decode_step_seconds() const { return decode_step_seconds_; }

 private:
  double prefill_tokens_per_second_ = 0;
  double decode_step_seconds_ = 0;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_STEP_RATES_H_
