#include "router/placement.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "common/step_times.h"
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

// Costs within about a fifth are the same: so much lies in what was measured by chance, and who
// looks a little faster would get everything until it is that much slower.
int Class(double cost) {
  int exponent = 0;
  const double mantissa = std::frexp(std::clamp(cost, 0.0, kAvoidSeconds), &exponent);  // [0.5, 1)
  return 4 * exponent + static_cast<int>(8 * mantissa);
}

struct Candidate {
  double penalty = 0;
  double cost = 0;
  uint32_t ours = 0;
  size_t index = 0;
};

bool Cheaper(const Candidate& a, const Candidate& b) {
  return std::tie(a.penalty, a.cost, a.ours, a.index) <
         std::tie(b.penalty, b.cost, b.ours, b.index);
}

bool CheaperByClass(const Candidate& a, const Candidate& b) {
  return std::make_tuple(a.penalty, Class(a.cost), a.ours, a.index) <
         std::make_tuple(b.penalty, Class(b.cost), b.ours, b.index);
}

class Placer {
 public:
  Placer(std::span<const WorkerView* const> workers, const PlacementRequest& request,
         const PlacementOptions& options)
      : workers_(workers), request_(request), options_(options) {}

  Placement Run() {
    for (const WorkerView* worker : workers_) NoteSize(*worker);
    std::optional<Placement> split = Split();
    if (split.has_value() && split->verdict == PlacementVerdict::kPlaced) return *split;
    // Prefill workers that are only busy are worth waiting for; without one that can take this
    // request the decode workers serve alone.
    if (split.has_value()) return *split;
    return Alone();
  }

 private:
  bool Serves(const WorkerView& worker) const { return worker.ready && !worker.draining; }

  // UINT64_MAX: more than can be counted.
  uint64_t Needed(const WorkerView& worker, uint32_t n, uint32_t max_tokens) const {
    const auto blocks = kv::BlocksNeeded(request_.prompt_tokens, n, max_tokens, worker.block_size);
    return blocks.ok() ? *blocks : UINT64_MAX;
  }

  bool Fits(const WorkerView& worker, uint32_t n, uint32_t max_tokens) const {
    if (request_.prompt_tokens + max_tokens > worker.context_length) return false;
    const uint64_t needed = Needed(worker, n, max_tokens);
    return std::all_of(worker.pool_blocks.begin(), worker.pool_blocks.end(),
                       [needed](uint32_t pool) { return needed <= pool; });
  }

  bool HasRoom(const WorkerView& worker) const {
    const uint64_t needed = Needed(worker, request_.n, request_.max_tokens);
    return std::all_of(worker.free_blocks.begin(), worker.free_blocks.end(),
                       [needed](uint32_t free) { return needed <= free; });
  }

  // A source holds the prompt once and no growth: its part ends with the first tokens.
  bool CanPrefill(const WorkerView& worker) const {
    return Serves(worker) && worker.prefill && Fits(worker, 1, 1);
  }

  bool CanDecode(const WorkerView& worker) const {
    return Serves(worker) && !worker.prefill && Fits(worker, request_.n, request_.max_tokens);
  }

  static bool Compatible(const WorkerView& source, const WorkerView& sink) {
    return source.numerics_id == sink.numerics_id && source.layout_fp == sink.layout_fp &&
           source.model == sink.model;
  }

  double Penalty(size_t index) const { return request_.avoid.count(index) ? kAvoidSeconds : 0; }

  // The median of what workers have measured: one that has just started counts as one of them,
  // neither as so slow that it never gets a request nor as so fast that it gets all.
  template <typename Measure>
  const WorkerView* Typical(const Measure& measure) const {
    std::vector<std::pair<double, const WorkerView*>> measured;
    for (const WorkerView* worker : workers_) {
      if (worker->ready && measure(*worker) > 0) measured.emplace_back(measure(*worker), worker);
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

  double PrefillSeconds(const WorkerView& worker) const {
    const double rate = Measured(worker, &WorkerView::prefill_tokens_per_second,
                                 kAssumedPrefillRate, typical_prefill_rate_);
    return static_cast<double>(worker.queued_prefill_tokens) / rate +
           worker.PromptSeconds(request_.prompt_tokens, rate);
  }

  double TransferSeconds(const WorkerView& source) const {
    const double rate =
        Measured(source, &WorkerView::transfer_bytes_per_second, 0, typical_transfer_rate_);
    if (rate <= 0) return 0;
    return options_.kv_bytes_per_token * static_cast<double>(request_.prompt_tokens) / rate;
  }

  // What a token of the request costs the worker and those that are there: the steps of all with it
  // less the steps of all without it.
  double DecodeSeconds(const WorkerView& worker) const {
    const uint32_t company = std::max(worker.running, worker.choices);
    const uint64_t keys = worker.running == 0 ? 0 : worker.decode_keys / worker.running;
    const StepTimes& times = TimesOf(worker);
    StepWork work{.decode_rows = company, .decode_keys = keys * company};
    const double before = company * times.Seconds(work);
    work.decode_rows += request_.n;
    work.decode_keys += request_.n * (request_.prompt_tokens + request_.max_tokens / 2);
    return work.decode_rows * times.Seconds(work) - before;
  }

  Candidate AsSink(size_t index) const {
    const WorkerView& worker = *workers_[index];
    return {Penalty(index) + (HasRoom(worker) ? 0 : kNoRoomSeconds), DecodeSeconds(worker),
            worker.streams, index};
  }

  bool WindowOpen(const WorkerView& worker) const {
    return worker.prompts_in_flight < options_.prompt_window;
  }

  // Every decode worker that it fits, best first.
  std::vector<Candidate> Sinks() const {
    std::vector<Candidate> sinks;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (CanDecode(*workers_[i])) sinks.push_back(AsSink(i));
    }
    std::sort(sinks.begin(), sinks.end(), CheaperByClass);
    return sinks;
  }

  std::vector<size_t> SinksFor(const WorkerView& source,
                               const std::vector<Candidate>& sinks) const {
    std::vector<size_t> out;
    for (const Candidate& sink : sinks) {
      if (out.size() == options_.max_sinks) break;
      if (Compatible(source, *workers_[sink.index])) out.push_back(sink.index);
    }
    return out;
  }

  // Absent: no prefill worker can take part.
  std::optional<Placement> Split() const {
    std::optional<std::vector<Candidate>> all_sinks;
    std::optional<Candidate> best;
    std::vector<size_t> best_sinks;
    bool busy = false;
    for (size_t i = 0; i < workers_.size(); ++i) {
      const WorkerView& source = *workers_[i];
      if (!CanPrefill(source) || request_.cut_off.contains(i)) continue;
      if (!all_sinks.has_value()) all_sinks = Sinks();
      std::vector<size_t> sinks = SinksFor(source, *all_sinks);
      if (sinks.empty()) continue;
      busy = true;
      if (!WindowOpen(source)) continue;
      const Candidate candidate{Penalty(i), PrefillSeconds(source) + TransferSeconds(source),
                                source.prompts_in_flight, i};
      if (best.has_value() && !Cheaper(candidate, *best)) continue;
      best = candidate;
      best_sinks = std::move(sinks);
    }
    if (!best.has_value())
      return busy ? std::optional(Verdict(PlacementVerdict::kWait)) : std::nullopt;
    Placement placement = Verdict(PlacementVerdict::kPlaced);
    placement.source = best->index;
    placement.sinks = std::move(best_sinks);
    return placement;
  }

  Placement Alone() const {
    std::optional<Candidate> best;
    bool serves = false, fits = false;
    for (size_t i = 0; i < workers_.size(); ++i) {
      const WorkerView& worker = *workers_[i];
      serves |= Serves(worker) && !worker.prefill;
      if (!CanDecode(worker)) continue;
      fits = true;
      if (!WindowOpen(worker)) continue;
      Candidate candidate = AsSink(i);
      candidate.cost += PrefillSeconds(worker);
      if (!best.has_value() || CheaperByClass(candidate, *best)) best = candidate;
    }
    if (!serves) return Verdict(PlacementVerdict::kNoWorker);
    if (!fits) return Verdict(PlacementVerdict::kNeverFits);
    if (!best.has_value()) return Verdict(PlacementVerdict::kWait);
    Placement placement = Verdict(PlacementVerdict::kPlaced);
    placement.sinks = {best->index};
    return placement;
  }

  Placement Verdict(PlacementVerdict verdict) const {
    Placement placement;
    placement.verdict = verdict;
    placement.needed_blocks = needed_blocks_;
    placement.largest_pool = largest_pool_;
    return placement;
  }

  // Remembers the decode worker with the largest pool, for the words of a refusal.
  void NoteSize(const WorkerView& worker) {
    if (!Serves(worker) || worker.prefill || worker.pool_blocks.empty()) return;
    const uint64_t pool = *std::min_element(worker.pool_blocks.begin(), worker.pool_blocks.end());
    if (pool < largest_pool_) return;
    largest_pool_ = pool;
    needed_blocks_ = Needed(worker, request_.n, request_.max_tokens);
  }

  const std::span<const WorkerView* const> workers_;
  const PlacementRequest& request_;
  const PlacementOptions& options_;
  mutable std::optional<double> typical_prefill_rate_;
  mutable std::optional<StepTimes> typical_times_;
  mutable std::optional<double> typical_transfer_rate_;
  uint64_t largest_pool_ = 0;
  uint64_t needed_blocks_ = 0;
};

}  // namespace

Placement Place(std::span<const WorkerView* const> workers, const PlacementRequest& request,
                const PlacementOptions& options) {
  return Placer(workers, request, options).Run();
}

}  // namespace baton::router
