// Time to first token and hit rate of whole traces under each placement policy, in simulated time
// (placement_replay.h). One JSON row per figure; ratios over jitters of different seeds.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/statusor.h"
#include "benchmarks/placement_replay.h"

ABSL_FLAG(std::string, traces, "", "folder of the trace files");

namespace baton::benchmarks {
namespace {

using router::PlacementPolicy;

constexpr uint64_t kSeeds = 3;
constexpr double kOverLeastWork = 1 / 0.85;
constexpr double kOverBlocks = 1;
constexpr double kLeastHitRate = 0.24;

struct Workload {
  std::string name;
  std::string file;
  ReplayOptions options;
  bool bounded = false;  // the others are printed beside it
};

std::vector<Workload> Workloads() {
  std::vector<Workload> out(3);
  out[0] = {"conversation", "mooncake_conversation.jsonl", {}, true};
  out[0].options.jitter = 3;  // its clock ticks every 3 s
  out[1] = {"synthetic", "mooncake_synthetic.jsonl", {}};
  out[1].options.speed = 0.6;
  out[2] = {"rtp_llm", "rtpllm_pd_online.jsonl", {}};
  out[2].options.workers = 5;
  out[2].options.cache_pieces = 800;
  out[2].options.piece_tokens = 1024;
  out[2].options.speed = 0.5;
  return out;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

using Results = std::vector<ReplayResult>;  // by seed

Results Run(const std::vector<TraceRow>& trace, ReplayOptions options, PlacementPolicy policy) {
  options.policy = policy;
  Results results;
  for (options.seed = 1; options.seed <= kSeeds; ++options.seed) {
    results.push_back(Replay(trace, options));
  }
  return results;
}

std::vector<double> Of(const Results& results, double ReplayResult::*figure) {
  std::vector<double> values;
  for (const ReplayResult& result : results) values.push_back(result.*figure);
  return values;
}

// A time, shorter is better.
void PrintPair(const std::string& name, const std::vector<double>& ours, const std::string& peer,
               const std::vector<double>& theirs, std::optional<double> bound) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(theirs[i] / ours[i]);
  nlohmann::ordered_json row = {{"name", name},
                                {"value", Median(ours)},
                                {"unit", "s"},
                                {"peer", peer},
                                {"peer_value", Median(theirs)},
                                {"ratio", Median(ratios)},
                                {"ratio_min", *std::min_element(ratios.begin(), ratios.end())},
                                {"ratio_max", *std::max_element(ratios.begin(), ratios.end())}};
  if (bound.has_value()) {
    row["bound"] = *bound;
    row["pass"] = row["ratio"].get<double>() >= *bound;
  }
  std::cout << row.dump() << std::endl;
}

void PrintHitRate(const std::string& name, double value, std::optional<double> bound) {
  nlohmann::ordered_json row = {{"name", name}, {"value", value}, {"unit", "of prompt tokens"}};
  if (bound.has_value()) {
    row["bound"] = *bound;
    row["pass"] = value >= *bound;
  }
  std::cout << row.dump() << std::endl;
}

void Measure(const Workload& workload, const std::vector<TraceRow>& trace) {
  const Results ours = Run(trace, workload.options, PlacementPolicy::kPredictedSeconds);
  const Results work = Run(trace, workload.options, PlacementPolicy::kLeastWork);
  const Results blocks = Run(trace, workload.options, PlacementPolicy::kQueuedAndNewBlocks);
  const std::string prefix = "placement_" + workload.name;
  const auto bound = [&workload](double value) {
    return workload.bounded ? std::optional(value) : std::nullopt;
  };
  for (const auto& [figure, of] :
       {std::pair("mean", &ReplayResult::mean_ttft), std::pair("p90", &ReplayResult::p90_ttft)}) {
    const std::string name = prefix + "_" + figure + "_ttft";
    PrintPair(name, Of(ours, of), "least work", Of(work, of), bound(kOverLeastWork));
    PrintPair(name + "_over_blocks", Of(ours, of), "queued and new blocks", Of(blocks, of),
              bound(kOverBlocks));
  }
  PrintHitRate(prefix + "_hit_rate", Median(Of(ours, &ReplayResult::hit_rate)),
               bound(kLeastHitRate));
  PrintHitRate(prefix + "_hit_rate_predicted", Median(Of(ours, &ReplayResult::predicted_hit_rate)),
               std::nullopt);
  PrintHitRate(prefix + "_hit_rate_least_work", Median(Of(work, &ReplayResult::hit_rate)),
               std::nullopt);
  PrintHitRate(prefix + "_hit_rate_blocks", Median(Of(blocks, &ReplayResult::hit_rate)),
               std::nullopt);
}

int Main() {
  for (const Workload& workload : Workloads()) {
    const absl::StatusOr<std::vector<TraceRow>> trace =
        ReadTrace(absl::GetFlag(FLAGS_traces) + "/" + workload.file);
    if (!trace.ok()) {
      std::cerr << "placement-bench: " << trace.status().message() << "\n";
      return 1;
    }
    Measure(workload, *trace);
  }
  return 0;
}

}  // namespace
}  // namespace baton::benchmarks

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return baton::benchmarks::Main();
}
