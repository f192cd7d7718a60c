// Measured speed of this worker's steps: for WorkerLoad and placement, and for how much of a prompt
// fits beside decodes.
#ifndef BATON_ENGINE_STEP_RATES_H_
#define BATON_ENGINE_STEP_RATES_H_

#include <cstdint>

#include "common/time.h"

namespace baton::engine {

// Moving averages over the last steps; 0 until the first one of their kind.
class StepRates {
 public:
  void Record(uint32_t prefill_tokens, uint32_t decode_rows, Duration took);

  // A mixed step counts as prefill: its decode rows ride along, which errs on the slow side.
  double prefill_tokens_per_second() const { return prefill_tokens_per_second_; }
  double decode_step_seconds() const { return decode_step_seconds_; }

  // Prompt tokens that make a step with decodes last at most kStretch times as long as one without
  // them, from LeastPrefill(step_tokens) to step_tokens. 0: the next step is to have the decodes
  // alone, so that what is measured of them stays true while prompts come without end.
  uint32_t PrefillBesideDecodes(uint32_t step_tokens) const;

  static constexpr double kStretch = 1.75;
  static constexpr uint32_t kMixedSteps = 16;  // then one of decodes alone

 private:
  // Of a prompt token beside decodes.
  double TokenSeconds() const;

  double prefill_tokens_per_second_ = 0;
  double decode_step_seconds_ = 0;
  double beside_seconds_ = 0;           // that a prompt token adds to a step with decodes
  uint32_t mixed_steps_ = kMixedSteps;  // since the last one of decodes alone
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_STEP_RATES_H_
