// Which sequences run in the next step: running decodes first, then started prefills, then new
// ones, under one token budget. A pure function, so that policies are tested without a model.
#ifndef BATON_ENGINE_SCHEDULER_H_
#define BATON_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <vector>

#include "common/time.h"
#include "engine/model_runner.h"

namespace baton::engine {

struct Candidate {
  SequenceId sequence = 0;
  Time admitted_at{};    // older first within each class
  uint32_t pending = 0;  // tokens to run before the next one can be sampled, at least 1
  bool decoding = false;
  bool started = false;
  StepId last_step = 0;  // who waited longest goes first when the budget is short
};

struct ScheduledItem {
  SequenceId sequence = 0;
  uint32_t tokens = 0;  // at least 1
  bool sample = false;  // the item reaches the end of what is pending
  bool decoding = false;
};

struct StepBudget {
  uint32_t tokens = 0;  // at least 1
  // Of prompts in a step that has decodes as well: a long prompt must not hold back those that are
  // being answered. 0: this step has the decodes alone. See StepRates::PrefillBesideDecodes.
  uint32_t prefill_beside_decodes = 0;
  uint32_t max_running = 0;  // nothing new is started while so many candidates are started
};

// What prompts get of a step that has decodes as well, however slow that makes it.
inline constexpr uint32_t LeastPrefill(uint32_t step_tokens) {
  return step_tokens < 8 ? 1 : step_tokens / 8;
}

// Neither side starves: with more decodes than tokens LeastPrefill is left for prompts, in a step
// of less than eight tokens in turn with the decodes.
std::vector<ScheduledItem> PlanStep(std::vector<Candidate> candidates, const StepBudget& budget);

}  // namespace baton::engine

#endif  // BATON_ENGINE_SCHEDULER_H_
