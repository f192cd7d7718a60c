#include "router/placement.h"

#include <algorithm>
#include <tuple>

#include "kv/block_demand.h"

namespace baton::router {
namespace {

// Stand-ins until any worker has measured itself.
constexpr double kAssumedPrefillRate = 1000;  // tokens per second
constexpr double kAssumedStepSeconds = 0.02;
// Added to the cost of a worker that refused the request, or that has no room now.
constexpr double kAvoidSeconds = 1e6;
constexpr double kNoRoomSeconds = 1e3;

struct Candidate {
  double cost = 0;
  uint32_t ours = 0;
  size_t index = 0;
  bool operator<(const Candidate& other) const {
    return std::tie(cost, ours, index) < std::tie(other.cost, other.ours, other.index);
  }
};

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
  double Typical(double WorkerView::*measured, double otherwise) const {
    std::vector<double> values;
    for (const WorkerView* worker : workers_) {
      if (worker->ready && worker->*measured > 0) values.push_back(worker->*measured);
    }
    if (values.empty()) return otherwise;
    const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  // What a worker has measured, else what is typical: looked for once, and only when it is missing.
  double Measured(const WorkerView& worker, double WorkerView::*measured, double otherwise,
                  std::optional<double>& typical) const {
    if (worker.*measured > 0) return worker.*measured;
    if (!typical.has_value()) typical = Typical(measured, otherwise);
    return *typical;
  }

  double PrefillSeconds(const WorkerView& worker) const {
    const double rate = Measured(worker, &WorkerView::prefill_tokens_per_second,
                                 kAssumedPrefillRate, typical_prefill_rate_);
    return static_cast<double>(worker.queued_prefill_tokens + request_.prompt_tokens) / rate;
  }

  double TransferSeconds(const WorkerView& source) const {
    const double rate =
        Measured(source, &WorkerView::transfer_bytes_per_second, 0, typical_transfer_rate_);
    if (rate <= 0) return 0;
    return options_.kv_bytes_per_token * static_cast<double>(request_.prompt_tokens) / rate;
  }

  double DecodeSeconds(const WorkerView& worker) const {
    const double step = Measured(worker, &WorkerView::decode_step_seconds, kAssumedStepSeconds,
                                 typical_step_seconds_);
    const uint32_t company = std::max(worker.running, worker.choices);
    return step * (request_.n + company) + (HasRoom(worker) ? 0 : kNoRoomSeconds);
  }

  bool WindowOpen(const WorkerView& worker) const {
    return worker.prompts_in_flight < options_.prompt_window;
  }

  std::vector<Candidate> SinksFor(const WorkerView& source) const {
    std::vector<Candidate> sinks;
    for (size_t i = 0; i < workers_.size(); ++i) {
      const WorkerView& sink = *workers_[i];
      if (!CanDecode(sink) || !Compatible(source, sink)) continue;
      sinks.push_back({DecodeSeconds(sink) + Penalty(i), sink.streams, i});
    }
    std::sort(sinks.begin(), sinks.end());
    return sinks;
  }

  // Absent: no prefill worker can take part.
  std::optional<Placement> Split() const {
    std::optional<Candidate> best;
    std::vector<Candidate> best_sinks;
    bool busy = false;
    for (size_t i = 0; i < workers_.size(); ++i) {
      const WorkerView& source = *workers_[i];
      if (!CanPrefill(source) || request_.cut_off.contains(i)) continue;
      std::vector<Candidate> sinks = SinksFor(source);
      if (sinks.empty()) continue;
      busy = true;
      if (!WindowOpen(source)) continue;
      const double prefill = PrefillSeconds(source) + TransferSeconds(source);
      const Candidate candidate{prefill + Penalty(i), source.prompts_in_flight, i};
      if (best.has_value() && !(candidate < *best)) continue;
      best = candidate;
      best_sinks = std::move(sinks);
    }
    if (!best.has_value())
      return busy ? std::optional(Verdict(PlacementVerdict::kWait)) : std::nullopt;
    Placement placement = Verdict(PlacementVerdict::kPlaced);
    placement.source = best->index;
    placement.predicted_seconds = best->cost;
    for (size_t k = 0; k < std::min(best_sinks.size(), options_.max_sinks); ++k) {
      placement.sinks.push_back(best_sinks[k].index);
    }
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
      const double cost = PrefillSeconds(worker) + DecodeSeconds(worker) + Penalty(i);
      const Candidate candidate{cost, worker.streams, i};
      if (!best.has_value() || candidate < *best) best = candidate;
    }
    if (!serves) return Verdict(PlacementVerdict::kNoWorker);
    if (!fits) return Verdict(PlacementVerdict::kNeverFits);
    if (!best.has_value()) return Verdict(PlacementVerdict::kWait);
    Placement placement = Verdict(PlacementVerdict::kPlaced);
    placement.sinks = {best->index};
    placement.predicted_seconds = best->cost;
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
  mutable std::optional<double> typical_step_seconds_;
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
