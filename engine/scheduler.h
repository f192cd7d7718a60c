// Which rows run in the next step: running decodes first, then prompts, under one token budget. A
// pure function, so that policies are tested without a model.
#ifndef BATON_ENGINE_SCHEDULER_H_
#define BATON_ENGINE_SCHEDULER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/time.h"
#include "engine/model_runner.h"

namespace baton::engine {

// A sequence's prompt, or one of its choices.
struct Candidate {
  SequenceId sequence = 0;
  uint32_t choice = 0;
  Time admitted_at{};     // older first within each class
  uint32_t position = 0;  // of the first token to run
  uint32_t pending = 0;   // tokens to run before the next one can be sampled, at least 1
  bool decoding = false;
  bool started = false;  // the sequence is in the batch
  StepId last_step = 0;  // who waited longest goes first when the budget is short
  uint32_t rows = 1;     // places in the batch: a prompt takes those of all its choices
};

struct ScheduledItem {
  SequenceId sequence = 0;
  uint32_t choice = 0;
  uint32_t position = 0;
  uint32_t tokens = 0;  // at least 1
  bool sample = false;  // the item reaches the end of what is pending
  bool decoding = false;
};

struct StepBudget {
  uint32_t tokens = 0;         // at least 1
  uint32_t prefill_alone = 0;  // of prompts in a step without decodes, at least 1
  // Of prompts in a step that has decodes as well: a long prompt must not hold back those that are
  // being answered. 0: this step has the decodes alone. See StepPlanner.
  uint32_t prefill_beside_decodes = 0;
  uint32_t max_running = 0;  // rows in the batch
};

// What prompts get of a step that has decodes as well, however slow that makes it.
inline constexpr uint32_t LeastPrefill(uint32_t step_tokens) {
  return std::clamp(step_tokens / 8, 1u, 8u);
}

// A prompt of `tokens` does not wait for an older one that has at least twice as many left. Were it
// longer, the two would have their first tokens no sooner on average than by age.
inline constexpr bool Overtakes(uint64_t tokens, uint64_t left_of_older) {
  return 2 * tokens <= left_of_older;
}

// A sequence joins the batch with all its choices or not at all. The oldest joins first and nobody
// overtakes one that does not fit yet, so nothing starves; one with more choices than `max_running`
// joins an empty batch.
//
// Neither side starves: with more decodes than tokens LeastPrefill is left for prompts, in a step
// of less than eight tokens in turn with the decodes.
//
// Of what prompts have of a step the oldest gets at least half, rounded up, so it comes to its end;
// then the next one is the oldest. Of the rest those that overtake it get theirs first, the one
// with the fewest tokens left before all; what is left goes by age.
std::vector<ScheduledItem> PlanStep(std::vector<Candidate> candidates, const StepBudget& budget);

}  // namespace baton::engine

#endif  // BATON_ENGINE_SCHEDULER_H_
