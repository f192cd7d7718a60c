// What the fixed order of sums costs: Baton's kernels in turns with kernels that have none, in the
// shape of SmolLM2-135M. JSON lines with the multiply-accumulates and the seconds of each turn.
#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "benchmarks/free_attention.h"
#include "benchmarks/free_order_case.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/tiers.h"

ABSL_FLAG(std::string, backend, "cpu", "cpu or cpu-TIER");
ABSL_FLAG(uint32_t, threads, 2, "threads");
ABSL_FLAG(uint32_t, rounds, 5, "turns of each");

namespace baton::benchmarks {
namespace {

using kernels::TensorType;
using kernels::cpu::CpuActivation;
using kernels::cpu::ThreadPool;
using kernels::cpu::Tier;

constexpr uint32_t kLayers = 30;
constexpr double kLeastSeconds = 0.05;  // of a turn

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double SecondsPerCall(const std::function<void()>& work) {
  const double start = Seconds();
  double taken = 0;
  int calls = 0;
  do {
    work();
    ++calls;
    taken = Seconds() - start;
  } while (taken < kLeastSeconds);
  return taken / calls;
}

void Print(const std::string& name, double macs, const std::function<void()>& fixed,
           const std::function<void()>& free) {
  std::vector<double> seconds, free_seconds;
  fixed();
  free();
  for (uint32_t round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    seconds.push_back(SecondsPerCall(fixed));
    free_seconds.push_back(SecondsPerCall(free));
  }
  std::cout << nlohmann::json{{"name", name},
                              {"macs", macs},
                              {"seconds", seconds},
                              {"free_seconds", free_seconds}}
                   .dump()
            << std::endl;
}

class Bench {
 public:
  Bench(const Tier& tier, const FreeKernels& kernels)
      : tier_(tier), kernels_(kernels), free_tier_(FreeTier(tier, kernels)) {}

  void Linear(TensorType type, const std::string& name, uint32_t rows) {
    const LinearCase one(type, rows, kLayers, tier_);
    CpuActivation out(rows, kCaseOutputs);
    out.SetForms(kernels::cpu::kFloat);
    const auto run = [&](const Tier& tier) {
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        kernels::cpu::RunLinear(tier, pool_, one.weight(layer), one.in(), {out});
      }
    };
    const double macs = double{kCaseInputs} * kCaseOutputs * rows * kLayers;
    Print(
        "linear_" + name + "_" + std::to_string(rows), macs, [&] { run(tier_); },
        [&] { run(free_tier_); });
  }

  void Decode(uint32_t sequences, uint32_t context) {
    const DecodeCase one(sequences, context, kLayers);
    CpuActivation out(sequences, kCaseInputs);
    out.SetForms(kernels::cpu::kFloat);
    kernels::cpu::Attention fixed(tier_, pool_);
    FreeAttention free(kernels_, tier_, pool_);
    const auto all_layers = [&](auto& attention) {
      return [&] {
        for (uint32_t layer = 0; layer < kLayers; ++layer) {
          attention.Run(one.call(layer), one.qkv(), out);
        }
      };
    };
    const double macs = 2.0 * sequences * context * kCaseInputs * kLayers;
    Print("attention_" + std::to_string(sequences) + "_at_" + std::to_string(context), macs,
          all_layers(fixed), all_layers(free));
  }

 private:
  ThreadPool pool_{absl::GetFlag(FLAGS_threads)};
  const Tier& tier_;
  const FreeKernels& kernels_;
  const Tier free_tier_;
};

// Null: no tier of that name, or none that free kernels are written for.
const Tier* ChosenTier(const std::string& backend) {
  if (backend == "cpu") return &kernels::cpu::BestTier();
  constexpr size_t kPrefix = std::string_view("cpu-").size();
  const auto* entry =
      backend.size() > kPrefix ? kernels::cpu::FindTier(backend.substr(kPrefix)) : nullptr;
  return entry != nullptr && entry->runs ? entry->tier : nullptr;
}

int Run() {
  const Tier* tier = ChosenTier(absl::GetFlag(FLAGS_backend));
  const FreeKernels* kernels = tier == nullptr ? nullptr : FreeKernelsOfTier(*tier);
  if (kernels == nullptr) {
    std::cerr << "--backend: needs AVX2 or AVX-512\n";
    return 1;
  }
  Bench bench(*tier, *kernels);
  for (const uint32_t rows : {1u, 4u, 16u, 512u}) bench.Linear(TensorType::kQ4_1, "q4_1", rows);
  for (const uint32_t rows : {1u, 4u, 16u, 512u}) bench.Linear(TensorType::kF16, "f16", rows);
  for (const uint32_t context : {200u, 600u, 1024u, 4096u}) bench.Decode(1, context);
  bench.Decode(16, 512);
  return 0;
}

}  // namespace
}  // namespace baton::benchmarks

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return baton::benchmarks::Run();
}
