// Prefill and decode rates of a model, through the ModelRunner with paged KV and sampler; with
// --llama-cpp beside llama-bench on the same file, the two taking turns. One JSON row a line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "common/status_macros.h"
#include "model/load.h"
#include "model/step_driver.h"

ABSL_FLAG(std::string, model, "", "GGUF file");
ABSL_FLAG(std::string, backend, "cpu", "cpu, cpu-scalar or reference");
ABSL_FLAG(uint32_t, threads, 2, "threads, also of the peer");
ABSL_FLAG(std::string, suite, "all", "prefill, decode or all");
ABSL_FLAG(uint32_t, rounds, 5, "turns of each");
ABSL_FLAG(std::string, llama_cpp, "", "folder with llama-bench");

namespace baton::model {
namespace {

using nlohmann::json;

constexpr uint32_t kPrefillTokens = 512;
constexpr uint32_t kDecodeTokens = 128;
constexpr uint32_t kServiceStepTokens = 64;  // the default of --step-tokens

double SecondsOf(const std::function<absl::Status()>& work, absl::Status& status) {
  const auto start = std::chrono::steady_clock::now();
  status = work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Any ids do: the cost does not depend on them.
std::vector<TokenId> SomeTokens(uint32_t first, uint32_t count, uint32_t vocab_size) {
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>((first + i) * 7919u % vocab_size));
  }
  return tokens;
}

absl::Status Prefill(StepDriver& driver, uint32_t vocab_size, uint32_t step_tokens) {
  driver.Restart();
  for (uint32_t at = 0; at < kPrefillTokens; at += step_tokens) {
    BATON_RETURN_IF_ERROR(driver.Step(SomeTokens(at, step_tokens, vocab_size)).status());
  }
  return absl::OkStatus();
}

absl::Status Decode(StepDriver& driver) {
  driver.Restart();
  TokenId token = 1;
  for (uint32_t i = 0; i < kDecodeTokens; ++i) {
    BATON_ASSIGN_OR_RETURN(token, driver.Step({token}));
  }
  return absl::OkStatus();
}

// Tokens per second of llama-bench, or an error with what it printed.
absl::StatusOr<double> PeerRate(const std::string& workload) {
  const std::string command =
      absl::GetFlag(FLAGS_llama_cpp) + "/llama-bench -m '" + absl::GetFlag(FLAGS_model) + "' -t " +
      std::to_string(absl::GetFlag(FLAGS_threads)) + " " + workload + " -r 1 -o json 2>/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return absl::UnavailableError("cannot run: " + command);
  std::string output;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  const int code = pclose(pipe);
  const json rows = json::parse(output, nullptr, /*allow_exceptions=*/false);
  if (code != 0 || !rows.is_array() || rows.empty() || !rows[0].contains("avg_ts")) {
    return absl::UnavailableError("failed: " + command + "\n" + output);
  }
  return rows[0]["avg_ts"].get<double>();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

struct Row {
  std::string name;
  uint32_t tokens;
  std::function<absl::Status()> work;
  std::string peer_workload;    // arguments of llama-bench; empty: not compared
  std::optional<double> bound;  // least ratio to the peer
};

absl::Status Measure(const Row& row) {
  const bool compare = !absl::GetFlag(FLAGS_llama_cpp).empty() && !row.peer_workload.empty();
  absl::Status status;
  SecondsOf(row.work, status);  // warms caches and pages
  BATON_RETURN_IF_ERROR(status);
  std::vector<double> rates, peer_rates, ratios;
  for (uint32_t round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    rates.push_back(row.tokens / SecondsOf(row.work, status));
    BATON_RETURN_IF_ERROR(status);
    if (!compare) continue;
    BATON_ASSIGN_OR_RETURN(const double peer_rate, PeerRate(row.peer_workload));
    peer_rates.push_back(peer_rate);
    ratios.push_back(rates.back() / peer_rate);
  }
  json out = {{"name", row.name}, {"value", Median(rates)}, {"unit", "tokens/s"}};
  if (compare) {
    out["peer"] = "llama-bench " + row.peer_workload;
    out["peer_value"] = Median(peer_rates);
    out["ratio"] = Median(ratios);
    out["ratio_min"] = *std::min_element(ratios.begin(), ratios.end());
    out["ratio_max"] = *std::max_element(ratios.begin(), ratios.end());
    if (row.bound.has_value()) {
      out["bound"] = *row.bound;
      out["pass"] = Median(ratios) >= *row.bound;
    }
  }
  std::cout << out.dump() << std::endl;
  return absl::OkStatus();
}

absl::Status RunAll() {
  LoadOptions options;
  options.path = absl::GetFlag(FLAGS_model);
  options.backend = absl::GetFlag(FLAGS_backend);
  options.threads = absl::GetFlag(FLAGS_threads);
  BATON_ASSIGN_OR_RETURN(LoadedModel model, Load(options));
  BATON_ASSIGN_OR_RETURN(const auto driver,
                         StepDriver::Create(model, kPrefillTokens, kPrefillTokens));
  const uint32_t vocab = model.config.vocab_size;
  const std::string suite = absl::GetFlag(FLAGS_suite);
  if (suite == "prefill" || suite == "all") {
    BATON_RETURN_IF_ERROR(
        Measure({"prefill_512", kPrefillTokens,
                 [&] { return Prefill(*driver, vocab, kPrefillTokens); }, "-p 512 -n 0", 1.0}));
    BATON_RETURN_IF_ERROR(Measure({"prefill_512_steps_of_64", kPrefillTokens,
                                   [&] { return Prefill(*driver, vocab, kServiceStepTokens); },
                                   "-p 512 -n 0", std::nullopt}));
  }
  if (suite == "decode" || suite == "all") {
    BATON_RETURN_IF_ERROR(Measure(
        {"decode_128", kDecodeTokens, [&] { return Decode(*driver); }, "-p 0 -n 128", 0.8}));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton::model

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = baton::model::RunAll();
  if (status.ok()) return 0;
  std::cerr << status << "\n";
  return 1;
}
