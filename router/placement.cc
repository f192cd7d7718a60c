#include "router/placement.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <tuple>
#include <utility>

#include "common/step_times.h"
#include "common/time.h"
#include "kv/block_demand.h"

namespace baton::router {
namespace {

// Stand-ins until any worker has measured itself.
constexpr double kAssumedPrefillRate = 1000;  // tokens per second
constexpr StepTimes kAssumedTimes = {.step = 0.007, .decode_row = 0.001, .decode_key = 1e-7};
// By which workers are told apart when one of them stands for those without figures.
constexpr StepWork kUsualDecodes = {.decode_rows = 8, .decode_keys = 8 * 512};
// Added to the cost of a worker that refused the request, or that has no room now.
constexpr double kAvoidSeconds = 1e6;
constexpr double kNoRoomSeconds = 1e3;

constexpr double kSameCost = 1.05;
// Workers that have figures and are asked for what is usual: enough for one of the middle.
constexpr size_t kSample = 33;

// Costs within about a fifth are the same: so much lies in what was measured by chance, and who
// looks a little faster would get everything until it is that much slower.
double Class(double cost) {
  int exponent = 0;
  const double mantissa = std::frexp(std::clamp(cost, 0.0, kAvoidSeconds), &exponent);  // [0.5, 1)
  return 4 * exponent + static_cast<int>(8 * mantissa);
}

struct Candidate {
  double penalty = 0;
  double cost = 0;  // or its class
  uint64_t missing = 0;
  uint32_t ours = 0;
  Time last_prompt;
  size_t index = 0;
};

bool Cheaper(const Candidate& a, const Candidate& b) {
  if (a.penalty != b.penalty) return a.penalty < b.penalty;
  if (a.cost != b.cost) return a.cost < b.cost;
  return std::tie(a.missing, a.ours, a.last_prompt, a.index) <
         std::tie(b.missing, b.ours, b.last_prompt, b.index);
}

void Classify(std::vector<Candidate>& candidates) {
  for (Candidate& candidate : candidates) candidate.cost = Class(candidate.cost);
}

bool WaitsLonger(const Candidate& a, const Candidate& b) {
  return std::tie(a.ours, a.last_prompt, a.index) < std::tie(b.ours, b.last_prompt, b.index);
}

// There is one.
Candidate Cheapest(const std::vector<Candidate>& candidates) {
  const Candidate* best = &candidates[0];
  for (const Candidate& candidate : candidates) {
    if (candidate.penalty > best->penalty) continue;
    if (candidate.penalty < best->penalty || candidate.cost < best->cost) best = &candidate;
  }
  return *best;
}

// Among those that cost at most a twentieth more than the cheapest, who got no prompt for longest:
// caches fill evenly, while the first of equals would throw out what others have room for.
size_t BestSource(const std::vector<Candidate>& candidates) {
  const Candidate cheapest = Cheapest(candidates);
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.penalty > cheapest.penalty) continue;
    if (candidate.cost > cheapest.cost * kSameCost) continue;
    if (best == nullptr || WaitsLonger(candidate, *best)) best = &candidate;
  }
  return best->index;
}

class Placer {
 public:
  Placer(std::span<const WorkerView* const> workers, const PlacementRequest& request,
         const PlacementOptions& options)
      : workers_(workers), request_(request), options_(options) {}

  Placement Run() {
    std::optional<Placement> split = Split();
    if (split.has_value() && split->verdict == PlacementVerdict::kPlaced) return *split;
    // Prefill workers that are only busy are worth waiting for; without one that can take this
    // request the decode workers serve alone.
    if (split.has_value()) return *split;
    return Alone();
  }

 private:
  struct Demand {
    uint32_t block_size = 0;  // 0: of no worker
    uint32_t n = 0;
    uint32_t max_tokens = 0;
    uint64_t blocks = 0;
  };

  bool Serves(const WorkerView& worker) const { return worker.ready && !worker.draining; }

  // UINT64_MAX: more than can be counted. Nearly always the same as for the worker before.
  uint64_t Needed(const WorkerView& worker, uint32_t n, uint32_t max_tokens, Demand& last) const {
    if (last.block_size == worker.block_size && last.n == n && last.max_tokens == max_tokens) {
      return last.blocks;
    }
    const auto blocks = kv::BlocksNeeded(request_.prompt_tokens, n, max_tokens, worker.block_size);
    last = {worker.block_size, n, max_tokens, blocks.ok() ? *blocks : UINT64_MAX};
    return last.blocks;
  }

  bool Fits(const WorkerView& worker, uint32_t n, uint32_t max_tokens, Demand& last) const {
    if (request_.prompt_tokens + max_tokens > worker.context_length) return false;
    const uint64_t needed = Needed(worker, n, max_tokens, last);
    return std::all_of(worker.pool_blocks.begin(), worker.pool_blocks.end(),
                       [needed](uint32_t pool) { return needed <= pool; });
  }

  // To begin with: it grows, and younger ones give way to it (docs/decisions/0024).
  bool HasRoom(const WorkerView& worker) const {
    const uint32_t tokens = kv::TokensAtFirst(0, request_.max_tokens, worker.block_size);
    const uint64_t needed = Needed(worker, request_.n, tokens, first_demand_);
    return std::all_of(worker.free_blocks.begin(), worker.free_blocks.end(),
                       [needed](uint32_t free) { return needed <= free; });
  }

  // A source holds the prompt once and no growth: its part ends with the first tokens.
  bool CanPrefill(const WorkerView& worker) const {
    return Serves(worker) && worker.prefill && !worker.shunned &&
           Fits(worker, 1, 1, prompt_demand_);
  }

  bool CanDecode(const WorkerView& worker) const {
    return Serves(worker) && !worker.prefill &&
           Fits(worker, request_.n, request_.max_tokens, whole_demand_);
  }

  static bool Compatible(const WorkerView& source, const WorkerView& sink) {
    return source.numerics_id == sink.numerics_id && source.layout_fp == sink.layout_fp &&
           source.model == sink.model;
  }

  double Penalty(size_t index) const {
    return request_.avoid.contains(index) || workers_[index]->shunned ? kAvoidSeconds : 0;
  }

  // The median of what workers have measured: one that has just started counts as one of them,
  // neither as so slow that it never gets a request nor as so fast that it gets all. Of the first
  // kSample.
  template <typename Measure>
  const WorkerView* Typical(const Measure& measure) const {
    std::vector<std::pair<double, const WorkerView*>> measured;
    for (const WorkerView* worker : workers_) {
      if (worker->ready && measure(*worker) > 0) measured.emplace_back(measure(*worker), worker);
      if (measured.size() == kSample) break;
    }
    if (measured.empty()) return nullptr;
    const auto middle = measured.begin() + static_cast<ptrdiff_t>(measured.size() / 2);
    std::nth_element(measured.begin(), middle, measured.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    return middle->second;
  }

  // What a worker has measured, else what is typical: looked for once, and only when it is missing.
  double Measured(const WorkerView& worker, double WorkerView::*measured, double otherwise,
                  std::optional<double>& typical) const {
    if (worker.*measured > 0) return worker.*measured;
    if (!typical.has_value()) {
      const WorkerView* const of =
          Typical([measured](const WorkerView& view) { return view.*measured; });
      typical = of == nullptr ? otherwise : of->*measured;
    }
    return *typical;
  }

  const StepTimes& TimesOf(const WorkerView& worker) const {
    if (worker.step_times.measured()) return worker.step_times;
    if (!typical_times_.has_value()) {
      const WorkerView* const of =
          Typical([](const WorkerView& view) { return view.step_times.Seconds(kUsualDecodes); });
      typical_times_ = of == nullptr ? kAssumedTimes : of->step_times;
    }
    return *typical_times_;
  }

  bool LooksAtCaches() const {
    return options_.policy != PlacementPolicy::kLeastWork && !request_.cached_tokens.empty();
  }

  uint64_t Cached(size_t index) const {
    return LooksAtCaches()
               ? std::min<uint64_t>(request_.cached_tokens[index], request_.prompt_tokens)
               : 0;
  }

  // The last token is always computed.
  uint64_t CachedToCompute(size_t index) const {
    return std::min(Cached(index), std::max<uint64_t>(request_.prompt_tokens, 1) - 1);
  }

  double PrefillRate(const WorkerView& worker) const {
    return Measured(worker, &WorkerView::prefill_tokens_per_second, kAssumedPrefillRate,
                    typical_prefill_rate_);
  }

  // What is left of the prompt after so much, once it is next there.
  double PromptSeconds(const WorkerView& worker, uint64_t cached) const {
    return worker.PromptSeconds(cached, request_.prompt_tokens, PrefillRate(worker));
  }

  double PrefillCost(size_t index) const {
    const WorkerView& worker = *workers_[index];
    const uint64_t cached = CachedToCompute(index);
    if (options_.policy == PlacementPolicy::kQueuedAndNewBlocks) {
      return static_cast<double>(kv::BlocksFor(worker.new_tokens_in_flight, worker.block_size) +
                                 kv::BlocksFor(request_.prompt_tokens - cached, worker.block_size));
    }
    return static_cast<double>(worker.queued_prefill_tokens) / PrefillRate(worker) +
           PromptSeconds(worker, cached);
  }

  static bool Idle(const WorkerView& worker) {
    return worker.queued_prefill_tokens == 0 && worker.prompts_in_flight == 0;
  }

  bool IsTried(const WorkerView& worker, double excess, size_t candidates) const {
    if (!Idle(worker)) return false;
    return worker.prompt_steps < kFewSteps ||
           ToSeconds(options_.now - worker.last_prompt) >=
               excess * kTrialPause * static_cast<double>(candidates);
  }

  // Candidates whose cost is in seconds, PrefillCost among them.
  void TryAgain(std::vector<Candidate>& candidates) const {
    if (options_.policy == PlacementPolicy::kQueuedAndNewBlocks) return;
    const Candidate best = Cheapest(candidates);
    for (Candidate& candidate : candidates) {
      if (candidate.penalty > best.penalty || candidate.cost <= best.cost * kSameCost) continue;
      const WorkerView& worker = *workers_[candidate.index];
      if (!IsTried(worker, candidate.cost - best.cost, candidates.size())) continue;
      const uint64_t cached = CachedToCompute(candidate.index);
      const double saved =
          PromptSeconds(worker, cached) - PromptSeconds(*workers_[best.index], cached);
      candidate.cost -= std::max(saved, 0.0);
    }
  }

  double TransferCost(const WorkerView& source, size_t sink) const {
    if (options_.policy == PlacementPolicy::kQueuedAndNewBlocks) return 0;
    return SecondsToMove(
        request_.prompt_tokens - Cached(sink),
        Measured(source, &WorkerView::transfer_bytes_per_second, 0, typical_transfer_rate_));
  }

  double SecondsToMove(uint64_t tokens, double bytes_per_second) const {
    if (bytes_per_second <= 0) return 0;
    return options_.kv_bytes_per_token * static_cast<double>(tokens) / bytes_per_second;
  }

  // What a token of the request costs the worker and those that are there: the steps of all with it
  // less the steps of all without it.
  double DecodeSeconds(const WorkerView& worker, uint32_t company) const {
    const uint64_t keys = worker.running == 0 ? 0 : worker.decode_keys / worker.running;
    const StepTimes& times = TimesOf(worker);
    StepWork work{.decode_rows = company, .decode_keys = keys * company};
    const double before = company * times.Seconds(work);
    work.decode_rows += request_.n;
    work.decode_keys += request_.n * (request_.prompt_tokens + request_.max_tokens / 2);
    return work.decode_rows * times.Seconds(work) - before;
  }

  // Of the whole answer. How long it will be nobody knows, nor who will be there in the meantime:
  // one request more than elsewhere is no reason to leave who holds most of the prompt. Else
  // conversations that ask at the same time would change places at every turn.
  double AnswerSeconds(size_t index) const {
    const WorkerView& worker = *workers_[index];
    uint32_t company = std::max(worker.running, worker.choices);
    if (Cached(index) * 2 > request_.prompt_tokens) company -= std::min(company, request_.n);
    return DecodeSeconds(worker, company) * std::max(request_.max_tokens / 2, 1u);
  }

  // `prompt_cost`: of getting the prompt's KV there.
  Candidate AsSink(size_t index, double prompt_cost) const {
    const WorkerView& worker = *workers_[index];
    return {Penalty(index) + (HasRoom(worker) ? 0 : kNoRoomSeconds),
            AnswerSeconds(index) + prompt_cost,
            request_.prompt_tokens - Cached(index),
            worker.streams,
            worker.last_prompt,
            index};
  }

  bool WindowOpen(const WorkerView& worker) const {
    return worker.prompts_in_flight < options_.prompt_window;
  }

  // Every decode worker that it fits.
  std::vector<Candidate> Sinks() const {
    std::vector<Candidate> sinks;
    sinks.reserve(workers_.size());
    std::optional<double> rate;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (!CanDecode(*workers_[i])) continue;
      if (!rate.has_value()) rate = TypicalTransferRate();
      sinks.push_back(AsSink(i, SecondsToMove(request_.prompt_tokens - Cached(i), *rate)));
    }
    Classify(sinks);
    return sinks;
  }

  double TypicalTransferRate() const {
    const WorkerView* const of =
        Typical([](const WorkerView& view) { return view.transfer_bytes_per_second; });
    return of == nullptr ? 0 : of->transfer_bytes_per_second;
  }

  // Those that may take the source's blocks, best first. Sources of one kind have the same.
  const std::vector<size_t>& SinksFor(const WorkerView& source,
                                      const std::vector<Candidate>& sinks) {
    for (const Kind& kind : kinds_) {
      if (Compatible(source, *kind.source)) return kind.sinks;
    }
    std::vector<Candidate> best;
    for (const Candidate& sink : sinks) {
      if (!Compatible(source, *workers_[sink.index])) continue;
      const bool full = best.size() == options_.max_sinks;
      if (full && !Cheaper(sink, best.back())) continue;
      if (full) best.pop_back();
      best.insert(std::upper_bound(best.begin(), best.end(), sink, Cheaper), sink);
    }
    kinds_.push_back({&source, {}});
    for (const Candidate& sink : best) kinds_.back().sinks.push_back(sink.index);
    return kinds_.back().sinks;
  }

  // Absent: no prefill worker can take part.
  std::optional<Placement> Split() {
    std::optional<std::vector<Candidate>> all_sinks;
    std::vector<Candidate> open;
    open.reserve(workers_.size());
    bool busy = false;
    for (size_t i = 0; i < workers_.size(); ++i) {
      const WorkerView& source = *workers_[i];
      if (!CanPrefill(source) || request_.cut_off.contains(i)) continue;
      if (!all_sinks.has_value()) all_sinks = Sinks();
      const std::vector<size_t>& sinks = SinksFor(source, *all_sinks);
      if (sinks.empty()) continue;
      busy = true;
      if (!WindowOpen(source)) continue;
      open.push_back({Penalty(i), PrefillCost(i) + TransferCost(source, sinks[0]), 0,
                      source.prompts_in_flight, source.last_prompt, i});
    }
    if (open.empty()) return busy ? std::optional(Verdict(PlacementVerdict::kWait)) : std::nullopt;
    TryAgain(open);
    const size_t best = BestSource(open);
    Placement placement = Verdict(PlacementVerdict::kPlaced);
    placement.source = best;
    placement.sinks = SinksFor(*workers_[best], *all_sinks);
    placement.cached_tokens = CachedToCompute(best);
    return placement;
  }

  Placement Alone() const {
    std::vector<Candidate> open;
    bool serves = false, fits = false;
    for (size_t i = 0; i < workers_.size(); ++i) {
      const WorkerView& worker = *workers_[i];
      serves |= Serves(worker) && !worker.prefill;
      if (!CanDecode(worker)) continue;
      fits = true;
      if (!WindowOpen(worker)) continue;
      open.push_back(AsSink(i, PrefillCost(i)));
    }
    if (!serves) return Verdict(PlacementVerdict::kNoWorker);
    if (!fits) return NeverFits();
    if (open.empty()) return Verdict(PlacementVerdict::kWait);
    TryAgain(open);
    Classify(open);
    const size_t best = std::min_element(open.begin(), open.end(), Cheaper)->index;
    Placement placement = Verdict(PlacementVerdict::kPlaced);
    placement.sinks = {best};
    placement.cached_tokens = CachedToCompute(best);
    return placement;
  }

  static Placement Verdict(PlacementVerdict verdict) {
    Placement placement;
    placement.verdict = verdict;
    return placement;
  }

  // Names the decode worker with the largest pool.
  Placement NeverFits() const {
    Placement placement = Verdict(PlacementVerdict::kNeverFits);
    for (const WorkerView* worker : workers_) {
      if (!Serves(*worker) || worker->prefill || worker->pool_blocks.empty()) continue;
      const uint64_t pool =
          *std::min_element(worker->pool_blocks.begin(), worker->pool_blocks.end());
      if (pool < placement.largest_pool) continue;
      placement.largest_pool = pool;
      placement.needed_blocks = Needed(*worker, request_.n, request_.max_tokens, whole_demand_);
    }
    return placement;
  }

  // Prefill workers that may send to the same decode workers.
  struct Kind {
    const WorkerView* source;
    std::vector<size_t> sinks;
  };

  const std::span<const WorkerView* const> workers_;
  const PlacementRequest& request_;
  const PlacementOptions& options_;
  mutable std::optional<double> typical_prefill_rate_;
  mutable std::optional<StepTimes> typical_times_;
  mutable std::optional<double> typical_transfer_rate_;
  mutable Demand prompt_demand_;
  mutable Demand whole_demand_;
  mutable Demand first_demand_;
  std::deque<Kind> kinds_;  // few; handed out by reference
};

}  // namespace

Placement Place(std::span<const WorkerView* const> workers, const PlacementRequest& request,
                const PlacementOptions& options) {
  return Placer(workers, request, options).Run();
}

}  // namespace baton::router
