#include "engine/scheduler.h"

#include <algorithm>
#include <tuple>

namespace baton::engine {

namespace {

// Decodes (one that was just handed over joins at once), started prefills, new ones.
int ClassOf(const Candidate& c) {
  if (c.decoding) return 0;
  return c.started ? 1 : 2;
}

bool Before(const Candidate& a, const Candidate& b) {
  const StepId waited_a = ClassOf(a) == 0 ? a.last_step : 0;
  const StepId waited_b = ClassOf(b) == 0 ? b.last_step : 0;
  return std::make_tuple(ClassOf(a), waited_a, a.admitted_at, a.sequence) <
         std::make_tuple(ClassOf(b), waited_b, b.admitted_at, b.sequence);
}

}  // namespace

std::vector<ScheduledItem> PlanStep(std::vector<Candidate> candidates, uint32_t step_tokens,
                                    uint32_t max_running) {
  std::sort(candidates.begin(), candidates.end(), Before);
  uint32_t running = 0;
  for (const Candidate& c : candidates) running += c.started ? 1 : 0;
  std::vector<ScheduledItem> plan;
  uint32_t budget = step_tokens;
  for (const Candidate& c : candidates) {
    if (budget == 0) break;
    if (!c.started && running >= max_running) continue;
    running += c.started ? 0 : 1;
    const uint32_t tokens = std::min(budget, c.pending);
    budget -= tokens;
    plan.push_back({c.sequence, tokens, tokens == c.pending, c.decoding});
  }
  return plan;
}

}  // namespace baton::engine
