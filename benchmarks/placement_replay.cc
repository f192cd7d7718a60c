#include "benchmarks/placement_replay.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <fstream>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <utility>

#include "common/metrics.h"
#include "common/random.h"
#include "common/step_times.h"
#include "common/time.h"
#include "engine/step_time_model.h"
#include "kv/cache_event.h"
#include "router/cached_prefixes.h"
#include "router/extent_index.h"
#include "router/worker_view.h"

namespace baton::benchmarks {
namespace {

using router::ExtentIndex;
using router::WorkerView;

constexpr double kReportEvery = 0.250;
constexpr double kBatchEvery = 0.050;
constexpr uint32_t kPromptWindow = 32;
constexpr size_t kIndexBytes = size_t{64} << 20;

// Events in the order of their times, then in that of their scheduling.
class Timeline {
 public:
  double now() const { return now_; }
  void At(double when, std::function<void()> event) {
    events_.emplace(std::pair(when, scheduled_++), std::move(event));
  }
  void After(double delay, std::function<void()> event) { At(now_ + delay, std::move(event)); }
  void RunAll() {
    while (!events_.empty()) {
      const auto next = events_.extract(events_.begin());
      now_ = next.key().first;
      next.mapped()();
    }
  }

 private:
  double now_ = 0;
  uint64_t scheduled_ = 0;
  std::map<std::pair<double, uint64_t>, std::function<void()>> events_;
};

// A piece is an extent: 16 blocks.
Digest BlockName(uint64_t piece, uint32_t block) {
  SeededRandom random(piece * ExtentIndex::kExtentBlocks + block);
  const uint64_t hi = random.Next64();
  return {hi, random.Next64()};
}

// Names of the prompt's full blocks.
std::vector<Digest> NamesOf(const TraceRow& row, uint32_t block_tokens) {
  std::vector<Digest> names;
  const uint64_t blocks =
      std::min<uint64_t>(row.tokens / block_tokens, row.pieces.size() * ExtentIndex::kExtentBlocks);
  for (uint64_t i = 0; i < blocks; ++i) {
    names.push_back(BlockName(row.pieces[i / ExtentIndex::kExtentBlocks],
                              static_cast<uint32_t>(i % ExtentIndex::kExtentBlocks)));
  }
  return names;
}

// Least recently used piece first, and of one prompt the last: a leaf always.
class PieceCache {
 public:
  PieceCache(size_t pieces, uint32_t piece_tokens)
      : capacity_(pieces), piece_tokens_(piece_tokens) {}

  uint64_t Cached(const TraceRow& row) const {
    const uint32_t block_tokens = piece_tokens_ / ExtentIndex::kExtentBlocks;
    const uint64_t full = row.tokens / block_tokens * block_tokens;
    uint64_t tokens = 0;
    for (const uint64_t piece : row.pieces) {
      if (!at_.contains(piece)) break;
      tokens += piece_tokens_;
    }
    return std::min({tokens, full, row.tokens - 1});
  }

  // Now the whole prompt is held, as the events say.
  void Add(const TraceRow& row, std::vector<kv::CacheEvent>& events) {
    const std::vector<Digest> names = NamesOf(row, piece_tokens_ / ExtentIndex::kExtentBlocks);
    for (size_t i = 0; i < row.pieces.size(); ++i) Store(row, names, i, events);
    for (auto piece = row.pieces.rbegin(); piece != row.pieces.rend(); ++piece) {
      held_.splice(held_.begin(), held_, at_.at(*piece));
    }
    while (held_.size() > capacity_) EvictOne(events);
  }

 private:
  struct Piece {
    uint64_t id;
    uint32_t first_ordinal;
    uint32_t blocks;
    Digest before;
  };

  void Store(const TraceRow& row, const std::vector<Digest>& names, size_t index,
             std::vector<kv::CacheEvent>& events) {
    if (at_.contains(row.pieces[index])) return;
    const size_t first = index * ExtentIndex::kExtentBlocks;
    const size_t end = std::min<size_t>(first + ExtentIndex::kExtentBlocks, names.size());
    const Digest before = first == 0 ? Digest{} : names[first - 1];
    const auto blocks = static_cast<uint32_t>(end > first ? end - first : 0);
    held_.push_front({row.pieces[index], static_cast<uint32_t>(first), blocks, before});
    at_[row.pieces[index]] = held_.begin();
    for (size_t i = first; i < end; ++i) {
      events.push_back({kv::CacheEvent::Action::kStored, static_cast<uint32_t>(i), names[i],
                        i == first ? before : names[i - 1]});
    }
  }

  void EvictOne(std::vector<kv::CacheEvent>& events) {
    const Piece piece = held_.back();
    held_.pop_back();
    at_.erase(piece.id);
    for (uint32_t i = piece.blocks; i > 0; --i) {
      events.push_back({kv::CacheEvent::Action::kRemoved, piece.first_ordinal + i - 1,
                        BlockName(piece.id, i - 1),
                        i == 1 ? piece.before : BlockName(piece.id, i - 2)});
    }
  }

  const size_t capacity_;
  const uint32_t piece_tokens_;
  std::list<Piece> held_;  // most recently used first
  std::map<uint64_t, std::list<Piece>::iterator> at_;
};

class Simulator {
 public:
  Simulator(std::vector<TraceRow> trace, const ReplayOptions& options)
      : options_(options), trace_(std::move(trace)), prefixes_(kIndexBytes, metrics_) {
    // The last one is the decode worker, which is never in the way.
    for (size_t i = 0; i <= options.workers; ++i) {
      workers_.push_back(std::make_unique<Worker>(options));
      WorkerView& view = workers_.back()->view;
      view.ready = true;
      view.prefill = i < options.workers;
      view.block_size = options.piece_tokens / ExtentIndex::kExtentBlocks;
      view.pool_blocks = view.free_blocks = {1u << 30};
      view.context_length = 1u << 30;
      if (!options.measured) {
        view.prefill_tokens_per_second = 1 / options.cost.token;
        view.step_times.prompt_key = 2 * options.cost.key;
      }
      views_.push_back(&view);
      prefixes_.Started(i);
      prefixes_.OnPage(i, {});
    }
  }

  ReplayResult Run() {
    SeededRandom random(options_.seed);
    for (size_t i = 0; i < trace_.size(); ++i) {
      trace_[i].arrival = (trace_[i].arrival + random.Unit() * options_.jitter) / options_.speed;
      timeline_.At(trace_[i].arrival, [this, i] {
        waiting_.push_back(i);
        Dispatch();
      });
    }
    timeline_.RunAll();
    return Summary();
  }

 private:
  struct Prompt {
    size_t row = 0;
    uint64_t predicted = 0;  // uncached when it was placed
    uint64_t uncached = 0;
  };
  struct Worker {
    explicit Worker(const ReplayOptions& options)
        : cache(options.cache_pieces, options.piece_tokens) {}
    WorkerView view;
    PieceCache cache;
    std::deque<Prompt> queue;  // the first one runs while `busy`
    bool busy = false;
    double began = 0;
    double service = 0;
    size_t requests = 0;
    engine::StepTimeModel model;
    std::vector<kv::CacheEvent> events;
    uint64_t sequence = 0;
  };

  void Dispatch() {
    while (!waiting_.empty()) {
      const TraceRow& row = trace_[waiting_.front()];
      router::PlacementOptions options;
      options.prompt_window = kPromptWindow;
      options.policy = options_.policy;
      options.now = At(timeline_.now());
      router::PlacementRequest request;
      request.prompt_tokens = row.tokens;
      std::vector<Digest> names;
      request.cached_tokens = prefixes_.Match(
          [&](const WorkerView& worker) {
            names = NamesOf(row, worker.block_size);
            return std::span<const Digest>(names);
          },
          views_);
      const router::Placement placement = router::Place(views_, request, options);
      if (placement.verdict != router::PlacementVerdict::kPlaced) return;
      predicted_hits_ += placement.cached_tokens;
      Submit(*placement.source, waiting_.front(), placement.cached_tokens);
      waiting_.pop_front();
    }
  }

  static Time At(double seconds) {
    return Time(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
  }

  void Submit(size_t index, size_t row, uint64_t cached) {
    Worker& worker = *workers_[index];
    const uint64_t tokens = trace_[row].tokens;
    worker.queue.push_back({row, tokens - cached, tokens - cached});
    worker.view.queued_prefill_tokens += tokens - cached;
    ++worker.view.prompts_in_flight;
    worker.view.new_tokens_in_flight += tokens - cached;
    worker.view.last_prompt = At(timeline_.now());
    ++worker.requests;
    if (!worker.busy) Begin(index);
  }

  void Begin(size_t index) {
    Worker& worker = *workers_[index];
    Prompt& prompt = worker.queue.front();
    const TraceRow& row = trace_[prompt.row];
    const uint64_t cached = worker.cache.Cached(row);
    hits_ += cached;
    prompt.uncached = row.tokens - cached;
    worker.busy = true;
    worker.began = timeline_.now();
    worker.service = options_.cost.Seconds(row.tokens, cached) * Slower(index);
    timeline_.After(worker.service, [this, index] { End(index); });
    Report(index);
    ReportLater(index, prompt.row);
  }

  double Slower(size_t index) const {
    if (index > 0) return 1;
    const bool first = workers_[0]->requests == 1;
    return options_.first_worker_slower * (first ? options_.first_prompt_slower : 1);
  }

  // The prompt was computed in steps of a piece each.
  void Learn(Worker& worker, const Prompt& prompt) {
    if (!options_.measured) return;
    const uint64_t tokens = trace_[prompt.row].tokens;
    for (uint64_t at = tokens - prompt.uncached; at < tokens; at += options_.piece_tokens) {
      StepWork work;
      work.AddPrompt(static_cast<uint32_t>(at),
                     static_cast<uint32_t>(std::min<uint64_t>(options_.piece_tokens, tokens - at)));
      worker.model.Record(
          work, worker.service * work.prompt_tokens / static_cast<double>(prompt.uncached));
    }
    StepWork step;
    step.AddPrompt(0, options_.piece_tokens);
    worker.view.prefill_tokens_per_second = options_.piece_tokens / worker.model.Predict(step);
    worker.view.step_times = worker.model.times();
    worker.view.prompt_steps = worker.model.prompt_steps();
  }

  void ReportLater(size_t index, size_t row) {
    timeline_.After(kReportEvery, [this, index, row] {
      const Worker& worker = *workers_[index];
      if (!worker.busy || worker.queue.front().row != row) return;
      Report(index);
      ReportLater(index, row);
    });
  }

  // What is queued, and of what runs the part that is left.
  void Report(size_t index) {
    Worker& worker = *workers_[index];
    double tokens = 0;
    for (const Prompt& prompt : worker.queue) {
      double left = 1;
      if (worker.busy && &prompt == &worker.queue.front()) {
        left = std::max(0.0, 1 - (timeline_.now() - worker.began) / worker.service);
      }
      tokens += left * static_cast<double>(prompt.uncached);
    }
    worker.view.queued_prefill_tokens = static_cast<uint64_t>(tokens);
  }

  void End(size_t index) {
    Worker& worker = *workers_[index];
    const TraceRow& row = trace_[worker.queue.front().row];
    ttft_.push_back(timeline_.now() - row.arrival);
    if (worker.events.empty()) {
      timeline_.After(kBatchEvery, [this, index] { SendBatch(index); });
    }
    worker.cache.Add(row, worker.events);
    worker.view.new_tokens_in_flight -= worker.queue.front().predicted;
    Learn(worker, worker.queue.front());
    worker.queue.pop_front();
    worker.busy = false;
    --worker.view.prompts_in_flight;
    if (worker.queue.empty()) {
      Report(index);
    } else {
      Begin(index);
    }
    Dispatch();
  }

  void SendBatch(size_t index) {
    Worker& worker = *workers_[index];
    const kv::CacheEventBatch batch{worker.sequence, std::exchange(worker.events, {})};
    worker.sequence = batch.next_sequence();
    prefixes_.OnBatch(index, batch);
  }

  ReplayResult Summary() {
    ReplayResult result;
    double tokens = 0;
    for (const TraceRow& row : trace_) tokens += static_cast<double>(row.tokens);
    std::sort(ttft_.begin(), ttft_.end());
    result.requests = ttft_.size();
    if (ttft_.empty()) return result;
    result.mean_ttft =
        std::accumulate(ttft_.begin(), ttft_.end(), 0.0) / static_cast<double>(ttft_.size());
    result.p90_ttft = ttft_[(ttft_.size() * 9 + 9) / 10 - 1];
    result.hit_rate = static_cast<double>(hits_) / tokens;
    result.predicted_hit_rate = static_cast<double>(predicted_hits_) / tokens;
    for (const auto& worker : workers_) {
      result.most_on_one = std::max(result.most_on_one, worker->requests);
    }
    result.on_first_worker = workers_[0]->requests;
    return result;
  }

  const ReplayOptions options_;
  std::vector<TraceRow> trace_;
  Timeline timeline_;
  MetricsRegistry metrics_;
  router::CachedPrefixes prefixes_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<const WorkerView*> views_;
  std::deque<size_t> waiting_;  // rows
  std::vector<double> ttft_;
  uint64_t hits_ = 0;
  uint64_t predicted_hits_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<TraceRow>> ReadTrace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError("no trace at " + path);
  std::vector<TraceRow> rows;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("timestamp") || !json.contains("input_length") ||
        !json.contains("hash_ids")) {
      return absl::InvalidArgumentError(path + ":" + std::to_string(number) + ": not a request");
    }
    TraceRow row;
    row.arrival = json["timestamp"].get<double>() / 1000;
    row.tokens = json["input_length"].get<uint64_t>();
    row.pieces = json["hash_ids"].get<std::vector<uint64_t>>();
    if (row.tokens > 0) rows.push_back(std::move(row));
  }
  return rows;
}

ReplayResult Replay(std::vector<TraceRow> trace, const ReplayOptions& options) {
  return Simulator(std::move(trace), options).Run();
}

}  // namespace baton::benchmarks
