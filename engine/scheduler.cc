#include "engine/scheduler.h"

#include <algorithm>
#include <span>
#include <tuple>

namespace baton::engine {

namespace {

bool Older(const Candidate& a, const Candidate& b) {
  return std::make_tuple(a.admitted_at, a.sequence, a.choice) <
         std::make_tuple(b.admitted_at, b.sequence, b.choice);
}

// Decodes (one that was just handed over joins at once), then prompts.
bool Before(const Candidate& a, const Candidate& b) {
  if (a.decoding != b.decoding) return a.decoding;
  if (a.decoding && a.last_step != b.last_step) return a.last_step < b.last_step;
  return Older(a, b);
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

// Tokens of each prompt; oldest first.
std::vector<uint32_t> SharesOf(std::span<const Candidate> prompts, uint32_t budget) {
  std::vector<uint32_t> shares(prompts.size());
  const auto give = [&](size_t i, uint32_t most) {
    const uint32_t tokens = std::min(prompts[i].pending - shares[i], most);
    shares[i] += tokens;
    budget -= tokens;
  };
  std::vector<size_t> shortest;
  for (size_t i = 1; i < prompts.size(); ++i) {
    if (Overtakes(prompts[i].pending, prompts[0].pending)) shortest.push_back(i);
  }
  std::stable_sort(shortest.begin(), shortest.end(), [&prompts](size_t a, size_t b) {
    return prompts[a].pending < prompts[b].pending;
  });
  if (!prompts.empty()) give(0, budget - budget / 2);
  for (const size_t i : shortest) give(i, budget);
  for (size_t i = 0; i < prompts.size(); ++i) give(i, budget);
  return shares;
}

}  // namespace

std::vector<ScheduledItem> PlanStep(std::vector<Candidate> candidates, const StepBudget& budget) {
  Admit(budget.max_running, candidates);
  std::sort(candidates.begin(), candidates.end(), Before);
  const auto prompts = std::find_if(candidates.begin(), candidates.end(),
                                    [](const Candidate& c) { return !c.decoding; });
  const bool mixed = prompts != candidates.begin() && prompts != candidates.end();
  uint32_t left = budget.tokens;
  std::vector<ScheduledItem> plan;
  const auto run = [&](const Candidate& c, uint32_t tokens) {
    if (tokens == 0) return;
    left -= tokens;
    plan.push_back({c.sequence, c.choice, c.position, tokens, tokens == c.pending, c.decoding});
  };
  const uint32_t kept = mixed ? LeftForPrefill(budget, candidates.front(), *prompts) : 0;
  for (auto c = candidates.begin(); c != prompts; ++c) run(*c, std::min(left - kept, c->pending));
  const uint32_t most = mixed ? budget.prefill_beside_decodes : budget.prefill_alone;
  const std::vector<uint32_t> shares = SharesOf({prompts, candidates.end()}, std::min(left, most));
  for (size_t i = 0; i < shares.size(); ++i) run(prompts[i], shares[i]);
  return plan;
}

}  // namespace baton::engine
