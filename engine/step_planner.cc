#include "engine/step_planner.h"

#include <chrono>

namespace baton::engine {

void StepPlanner::Record(const StepWork& work, Duration took) {
  if (work.prompt_tokens > 0 && work.decode_rows > 0) ++mixed_steps_;
  if (work.prompt_tokens == 0) mixed_steps_ = 0;
  largest_prompts_ = std::max(largest_prompts_, work.prompt_tokens);
  model_.Record(work, ToSeconds(took));
}

StepBudget StepPlanner::Budget(const StepOutlook& outlook) const {
  return {.tokens = options_.step_tokens,
          .prefill_alone = PromptsAlone(outlook.prompt_start),
          .prefill_beside_decodes = PromptsBesideDecodes(outlook)};
}

uint32_t StepPlanner::PromptsAlone(uint32_t start) const {
  if (options_.planned_step <= Duration{0}) return options_.step_tokens;
  const auto most = static_cast<uint32_t>(
      std::min<uint64_t>(options_.step_tokens, 2 * uint64_t{largest_prompts_}));
  const uint32_t fit = model_.PromptTokensWithin(ToSeconds(options_.planned_step), {}, start, most);
  const uint32_t least = std::min(kPromptUnit, most);
  return std::max(fit - fit % kPromptUnit, least);
}

uint32_t StepPlanner::PromptsBesideDecodes(const StepOutlook& outlook) const {
  return mixed_steps_ >= kMixedSteps ? 0 : Fitting(outlook);
}

double StepPlanner::Stretched(const StepOutlook& outlook) const {
  StepWork joined = outlook.decodes;
  joined.decode_rows += outlook.waiting;
  return kStretch * model_.Predict(joined);
}

Duration StepPlanner::Interval(const StepOutlook& outlook) const {
  const uint64_t rows = outlook.decodes.decode_rows;
  if (rows == 0 || rows > uint64_t{kCrowd} * outlook.waiting) return Duration{0};
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(Stretched(outlook), StepTimeModel::kLongest)));
}

uint32_t StepPlanner::Fitting(const StepOutlook& outlook) const {
  const uint32_t fit = model_.PromptTokensWithin(Stretched(outlook), outlook.decodes,
                                                 outlook.prompt_start, options_.step_tokens);
  return std::max(fit, LeastPrefill(options_.step_tokens));
}

double StepPlanner::PromptTokensPerSecond(const StepOutlook& outlook) const {
  if (!model_.measured()) return 0;
  const bool beside = outlook.decodes.decode_rows > 0;
  const uint32_t tokens = beside ? Fitting(outlook) : PromptsAlone(outlook.prompt_start);
  StepWork work = outlook.decodes;
  work.AddPrompt(outlook.prompt_start, tokens);
  const double between = beside ? model_.Predict(outlook.decodes) / kMixedSteps : 0;
  return tokens / (model_.Predict(work) + between);
}

double StepPlanner::DecodeStepSeconds(const StepWork& decodes) const {
  if (!model_.decodes_measured()) return 0;
  return model_.Predict(decodes.decode_rows > 0 ? decodes : StepWork{.decode_rows = 1});
}

}  // namespace baton::engine
