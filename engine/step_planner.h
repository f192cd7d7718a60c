// How much of prompts a step holds, by what its time is predicted to be.
#ifndef BATON_ENGINE_STEP_PLANNER_H_
#define BATON_ENGINE_STEP_PLANNER_H_

#include <algorithm>
#include <cstdint>

#include "common/step_times.h"
#include "common/time.h"
#include "engine/scheduler.h"
#include "engine/step_time_model.h"

namespace baton::engine {

struct StepPlannerOptions {
  uint32_t step_tokens = 64;  // most tokens of a step, at least 1
  // A step of prompts alone is planned to last at most so long; zero: it is filled.
  Duration planned_step{0};
};

// What a step would run: its decodes, how many choices wait for the end of their prompt, and where
// the longest started prompt stands.
struct StepOutlook {
  StepWork decodes{};
  uint32_t waiting = 0;
  uint32_t prompt_start = 0;
};

// Deterministic. Owner: the engine.
class StepPlanner {
 public:
  explicit StepPlanner(const StepPlannerOptions& options) : options_(options) {}

  void Record(const StepWork& work, Duration took);

  // Prompt tokens of the next step, alone and beside the decodes; `max_running` is left as it is.
  StepBudget Budget(const StepOutlook& outlook) const;

  // At most step_tokens. Beginning with kFirstPrompts, no step is planned to hold more than twice
  // as much as one before: a line that was fitted to small steps is not trusted for large ones.
  // A whole number of kPromptUnit where that leaves at least one.
  uint32_t PromptsAlone(uint32_t start) const;

  // So many that the step lasts at most kStretch times as long as one of the decodes with those
  // that wait among them, from LeastPrefill(step_tokens) to step_tokens. 0: the next step is to
  // have the decodes alone, so that what is measured of them stays true while prompts come without
  // end.
  uint32_t PromptsBesideDecodes(const StepOutlook& outlook) const;

  // The least time from the start of a step of the decodes to that of the next while `waiting` more
  // are coming whose prompts others compute on the same cores: so long a step may last where the
  // prompts are computed here. Zero when more than kCrowd times as many decode as are coming.
  Duration Interval(const StepOutlook& outlook) const;

  // Of prompts that begin, as things stand beside these decodes; 0: nothing is measured yet.
  double PromptTokensPerSecond(const StepOutlook& outlook) const;
  // Of these decodes alone, or of one when there are none; 0: none was measured yet.
  double DecodeStepSeconds(const StepWork& decodes) const;
  const StepTimeModel& model() const { return model_; }

  static constexpr double kStretch = 1.75;
  static constexpr uint32_t kCrowd = 2;
  static constexpr uint32_t kMixedSteps = 16;  // then one of decodes alone
  static constexpr uint32_t kFirstPrompts = 64;
  static constexpr uint32_t kPromptUnit = 32;

 private:
  double Stretched(const StepOutlook& outlook) const;
  uint32_t Fitting(const StepOutlook& outlook) const;

  const StepPlannerOptions options_;
  StepTimeModel model_;
  uint32_t largest_prompts_ = kFirstPrompts / 2;  // tokens of a step
  uint32_t mixed_steps_ = kMixedSteps;            // since the last one of decodes alone
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_STEP_PLANNER_H_
