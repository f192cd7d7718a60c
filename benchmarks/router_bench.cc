// What cache-aware placement costs the router's one thread: 1,000 workers, 20 M cached tokens,
// prompts of 8,192 tokens. A placement is what the core does for a request: the match against the
// index, and the choice. The names of the prompt's blocks come with it, from the thread that
// tokenizes; what they cost there is a row of its own. One JSON row per figure.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/parse.h"
#include "common/metrics.h"
#include "common/random.h"
#include "kv/block_hash.h"
#include "kv/cache_event.h"
#include "router/cached_prefixes.h"
#include "router/extent_index.h"
#include "router/placement.h"
#include "router/worker_view.h"

namespace baton::benchmarks {
namespace {

using router::CachedPrefixes;
using router::ExtentIndex;
using router::WorkerView;

constexpr size_t kWorkers = 1000;  // every other one prefills
constexpr uint64_t kCachedTokens = 20'000'000;
constexpr uint32_t kBlockTokens = 16;
constexpr size_t kPromptTokens = 8192;
constexpr size_t kPlacements = 10000;
constexpr size_t kIndexBytes = size_t{64} << 20;

constexpr double kMostSeconds = 50e-6;
constexpr double kLeastPlacements = 10000;  // a second
constexpr double kMostEntryBytes = 16;

// Of this thread's processor time: what others take of the core does not count.
double Now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void Print(const std::string& name, double value, const std::string& unit,
           std::optional<double> bound = std::nullopt, bool larger_is_better = false) {
  nlohmann::ordered_json row = {{"name", name}, {"value", value}, {"unit", unit}};
  if (bound.has_value()) {
    row["bound"] = *bound;
    row["pass"] = larger_is_better ? value >= *bound : value <= *bound;
  }
  std::cout << row.dump() << std::endl;
}

std::vector<TokenId> Tokens(SeededRandom& random, size_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.Below(100000));
  return tokens;
}

std::vector<Digest> NamesOf(const std::vector<TokenId>& prompt) {
  return kv::BlockHashes(kv::RootHash("bench"), prompt, kBlockTokens);
}

class Cluster {
 public:
  Cluster() : workers_(kWorkers) {
    for (size_t i = 0; i < kWorkers; ++i) {
      WorkerView& worker = workers_[i];
      worker.ready = true;
      worker.prefill = i % 2 == 0;
      worker.name = "worker-" + std::to_string(i);
      worker.block_size = kBlockTokens;
      worker.pool_blocks = worker.free_blocks = {8192};
      worker.context_length = 131072;
      worker.prefill_tokens_per_second = 9000 + static_cast<double>(random_.Below(2000));
      worker.step_times = {.step = 0.005, .decode_row = 1e-4, .decode_key = 1e-8};
      worker.transfer_bytes_per_second = 1e10;
      worker.queued_prefill_tokens = random_.Below(20000);
      worker.prompt_steps = 1000;
      worker.running = static_cast<uint32_t>(random_.Below(32));
      views_.push_back(&worker);
      sequences_.push_back(0);
      prefixes_.Started(i);
      prefixes_.OnPage(i, {});
    }
  }

  void Store(size_t worker, const std::vector<Digest>& names) {
    Send(worker, names, kv::CacheEvent::Action::kStored);
  }
  // All of it, from its end.
  void Drop(size_t worker, const std::vector<Digest>& names) {
    Send(worker, names, kv::CacheEvent::Action::kRemoved);
  }

  std::span<const uint32_t> Match(const std::vector<Digest>& names) {
    return prefixes_.Match([&](const WorkerView&) { return std::span<const Digest>(names); },
                           views_);
  }

  size_t Place(const std::vector<Digest>& names) {
    router::PlacementRequest request;
    request.prompt_tokens = names.size() * kBlockTokens;
    request.max_tokens = 512;
    request.cached_tokens = Match(names);
    router::PlacementOptions options;
    options.kv_bytes_per_token = 1e5;
    const router::Placement placement = router::Place(views_, request, options);
    cached_ += placement.cached_tokens;
    return *placement.source;
  }

  CachedPrefixes& prefixes() { return prefixes_; }
  uint64_t cached() const { return cached_; }

 private:
  void Send(size_t worker, const std::vector<Digest>& names, kv::CacheEvent::Action action) {
    kv::CacheEventBatch batch;
    batch.first_sequence = sequences_[worker];
    const auto count = static_cast<uint32_t>(names.size());
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t at = action == kv::CacheEvent::Action::kStored ? i : count - 1 - i;
      batch.events.push_back({action, at, names[at], at == 0 ? Digest{} : names[at - 1]});
    }
    sequences_[worker] = batch.next_sequence();
    prefixes_.OnBatch(worker, batch);
  }

  SeededRandom random_{1};
  MetricsRegistry metrics_;
  CachedPrefixes prefixes_{kIndexBytes, metrics_};
  std::vector<WorkerView> workers_;
  std::vector<const WorkerView*> views_;
  std::vector<uint64_t> sequences_;
  uint64_t cached_ = 0;
};

// Mean and 99th percentile of a call each.
void PrintTimes(const std::string& name, size_t calls, const std::function<void(size_t)>& call) {
  std::vector<double> times;
  double total = 0;
  for (size_t i = 0; i < calls; ++i) {
    const double begin = Now();
    call(i);
    times.push_back(Now() - begin);
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  Print(name, total / static_cast<double>(calls), "s", kMostSeconds);
  Print(name + "_p99", times[(times.size() * 99 + 99) / 100 - 1], "s");
}

// 20 M tokens: prompts that one worker each holds, and one that all hold; by their names.
struct Filled {
  std::vector<Digest> shared;
  std::vector<std::vector<Digest>> own;
};

Filled Fill(Cluster& cluster, SeededRandom& random) {
  Filled filled;
  filled.shared = NamesOf(Tokens(random, kPromptTokens));
  for (size_t i = 0; i < kWorkers; ++i) cluster.Store(i, filled.shared);
  const uint64_t left = kCachedTokens - kWorkers * kPromptTokens;
  for (uint64_t at = 0; at < left; at += kPromptTokens) {
    const size_t worker = at / kPromptTokens % kWorkers;
    filled.own.push_back(NamesOf(Tokens(random, kPromptTokens)));
    cluster.Store(worker, filled.own.back());
  }
  return filled;
}

// The rest of the tokens in prompts that only one worker holds: the most memory a token can take.
double BytesPerEntryWithoutSharing(SeededRandom& random) {
  ExtentIndex index(kIndexBytes);
  for (uint64_t tokens = 0, place = 0; tokens < kCachedTokens; tokens += kCachedTokens / kWorkers) {
    place = *index.AddPlace();
    for (uint64_t at = 0; at < kCachedTokens / kWorkers; at += 256) {
      const uint64_t hi = random.Next64();
      index.Set(static_cast<uint32_t>(place), Digest{hi, 0}, static_cast<uint32_t>(at / 256));
    }
  }
  return static_cast<double>(index.bytes()) / static_cast<double>(index.entries());
}

// What comes before a placement, and what is part of it.
void MeasureParts(Cluster& cluster, const Filled& filled, SeededRandom& random) {
  const std::vector<TokenId> prompt = Tokens(random, kPromptTokens);
  PrintTimes("router_names", 2000, [&](size_t) { NamesOf(prompt); });
  PrintTimes("router_match_held_by_all", 2000, [&](size_t) { cluster.Match(filled.shared); });
  PrintTimes("router_match_held_by_one", 2000, [&](size_t) { cluster.Match(filled.own[0]); });
}

void MeasurePlacements(Cluster& cluster, const Filled& filled, SeededRandom& random) {
  std::vector<std::vector<Digest>> unknown;
  for (int i = 0; i < 64; ++i) unknown.push_back(NamesOf(Tokens(random, kPromptTokens)));
  PrintTimes("router_placement_unknown", kPlacements,
             [&](size_t i) { cluster.Place(unknown[i % unknown.size()]); });
  PrintTimes("router_placement_held_by_one", kPlacements,
             [&](size_t i) { cluster.Place(filled.own[i % filled.own.size()]); });
  PrintTimes("router_placement_held_by_all", kPlacements,
             [&](size_t) { cluster.Place(filled.shared); });
}

// Each prompt is placed, stored where it went, and dropped there when 2,000 more have come.
void MeasureRate(Cluster& cluster, SeededRandom& random) {
  std::vector<std::vector<Digest>> prompts;
  for (int i = 0; i < 4000; ++i) prompts.push_back(NamesOf(Tokens(random, kPromptTokens)));
  std::deque<std::pair<size_t, std::vector<Digest>>> stored;
  double placing = 0;
  const double begin = Now();
  for (const std::vector<Digest>& prompt : prompts) {
    const double from = Now();
    const size_t worker = cluster.Place(prompt);
    placing += Now() - from;
    stored.emplace_back(worker, prompt);
    cluster.Store(worker, stored.back().second);
    if (stored.size() <= 2000) continue;
    cluster.Drop(stored.front().first, stored.front().second);
    stored.pop_front();
  }
  const double total = Now() - begin;
  const double blocks = 4000 * 512 + 2000 * 512;
  Print("router_placements_per_second", static_cast<double>(prompts.size()) / placing, "1/s",
        kLeastPlacements, true);
  Print("router_placements_per_second_with_events", static_cast<double>(prompts.size()) / total,
        "1/s");
  Print("router_cache_events_per_second", blocks / (total - placing), "1/s");
}

// A tenth of the workers is lost.
void MeasureLoss(Cluster& cluster) {
  const double begin = Now();
  for (size_t i = 0; i < kWorkers; i += 10) cluster.prefixes().Lost(i);
  Print("router_worker_loss", (Now() - begin) / (kWorkers / 10), "s");
}

void Main() {
  SeededRandom random(2);
  Cluster cluster;
  const Filled filled = Fill(cluster, random);
  const ExtentIndex& index = cluster.prefixes().index();
  Print("router_index_entries", static_cast<double>(index.entries()), "pairs of worker and extent");
  Print("router_index_bytes_per_entry",
        static_cast<double>(index.bytes()) / static_cast<double>(index.entries()), "B",
        kMostEntryBytes);
  Print("router_index_bytes_per_entry_without_sharing", BytesPerEntryWithoutSharing(random), "B",
        kMostEntryBytes);
  MeasureParts(cluster, filled, random);
  MeasurePlacements(cluster, filled, random);
  MeasureRate(cluster, random);
  MeasureLoss(cluster);
}

}  // namespace
}  // namespace baton::benchmarks

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  baton::benchmarks::Main();
  return 0;
}
