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
  return std::make_tuple(ClassOf(a), waited_a, a.admitted_at, a.sequence, a.choice) <
         std::make_tuple(ClassOf(b), waited_b, b.admitted_at, b.sequence, b.choice);
}

bool Older(const Candidate& a, const Candidate& b) {
  return std::make_tuple(a.admitted_at, a.sequence) < std::make_tuple(b.admitted_at, b.sequence);
}

// Leaves those in the batch and those that join it.
void Admit(uint32_t max_running, std::vector<Candidate>& candidates) {
  uint32_t running = 0;
  for (const Candidate& c : candidates) running += c.started ? c.rows : 0;
  const auto fresh = std::stable_partition(candidates.begin(), candidates.end(),
                                           [](const Candidate& c) { return c.started; });
  std::sort(fresh, candidates.end(), Older);
  auto joined = fresh;
  while (joined != candidates.end()) {
    const auto end = std::find_if(joined, candidates.end(), [&joined](const Candidate& c) {
      return c.sequence != joined->sequence;
    });
    uint32_t rows = 0;
    for (auto c = joined; c != end; ++c) rows += c->rows;
    if (running > 0 && running + rows > max_running) break;
    running += rows;
    joined = end;
  }
  candidates.erase(joined, candidates.end());
}

// What decodes leave for prompts even when there are more decodes than tokens. A small step cannot
// be shared, so there whoever waited longer has it.
uint32_t LeftForPrefill(const StepBudget& budget, const Candidate& decode,
                        const Candidate& prefill) {
  if (budget.tokens < 8 && prefill.last_step >= decode.last_step) return 0;
  return std::min(LeastPrefill(budget.tokens), budget.prefill_beside_decodes);
}

}  // namespace

std::vector<ScheduledItem> PlanStep(std::vector<Candidate> candidates, const StepBudget& budget) {
  Admit(budget.max_running, candidates);
  std::sort(candidates.begin(), candidates.end(), Before);
  const auto prefill = std::find_if(candidates.begin(), candidates.end(),
                                    [](const Candidate& c) { return !c.decoding; });
  const bool mixed = prefill != candidates.begin() && prefill != candidates.end();
  uint32_t left = budget.tokens;
  uint32_t left_prefill = mixed ? budget.prefill_beside_decodes : budget.prefill_alone;
  uint32_t left_decode =
      budget.tokens - (mixed ? LeftForPrefill(budget, candidates.front(), *prefill) : 0);
  std::vector<ScheduledItem> plan;
  for (const Candidate& c : candidates) {
    uint32_t& left_of_class = c.decoding ? left_decode : left_prefill;
    const uint32_t tokens = std::min({left, left_of_class, c.pending});
    if (tokens == 0) continue;
    left -= tokens;
    left_of_class -= tokens;
    plan.push_back({c.sequence, c.choice, c.position, tokens, tokens == c.pending, c.decoding});
  }
  return plan;
}

}  // namespace baton::engine
