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
  StepId last_step = 0;  // decodes that waited longest go first when the budget is short
};

struct ScheduledItem {
  SequenceId sequence = 0;
  uint32_t tokens = 0;  // at least 1
  bool sample = false;  // the item reaches the end of what is pending
  bool decoding = false;
};

// Nothing new is started while `max_running` candidates are started.
std::vector<ScheduledItem> PlanStep(std::vector<Candidate> candidates, uint32_t step_tokens,
                                    uint32_t max_running);

}  // namespace baton::engine

#endif  // BATON_ENGINE_SCHEDULER_H_
