// How far the cpu backend is from double arithmetic on the same file: one JSON row with the mean KL
// over the whole vocabulary, on the oracle's prompts and continuations. Any model with the
// vocabulary of SmolLM2 will do.
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "common/status_macros.h"
#include "model/model_harness.h"
#include "tests/golden/oracle.h"

ABSL_FLAG(std::string, model, "", "GGUF file");
ABSL_FLAG(std::string, oracles, "", "the folder oracles/models");
ABSL_FLAG(uint32_t, cases, 12, "how many, the shortest first");
ABSL_FLAG(uint32_t, threads, 2, "of each backend");

namespace baton::golden {
namespace {

using model::ModelHarness;

constexpr uint32_t kChunk = 64;
constexpr uint32_t kPositions = 2048;

absl::StatusOr<std::unique_ptr<ModelHarness>> Harness(const std::string& backend) {
  return ModelHarness::CreateForOneSequence({.path = absl::GetFlag(FLAGS_model),
                                             .backend = backend,
                                             .threads = absl::GetFlag(FLAGS_threads),
                                             .context = kPositions},
                                            kChunk);
}

absl::Status Run() {
  BATON_ASSIGN_OR_RETURN(auto cases, ReadGreedyCases(absl::GetFlag(FLAGS_oracles)));
  cases.resize(std::min<size_t>(cases.size(), absl::GetFlag(FLAGS_cases)));
  BATON_ASSIGN_OR_RETURN(const auto reference, Harness("reference"));
  BATON_ASSIGN_OR_RETURN(const auto cpu, Harness("cpu"));
  double kl = 0;
  size_t positions = 0, differ = 0;
  for (const GreedyCase& one : cases) {
    std::vector<std::vector<double>> exact;
    reference->Restart();
    reference->RunAll(one.TeacherForced(), kChunk, 0,
                      [&](std::vector<double> logits) { exact.push_back(std::move(logits)); });
    size_t at = 0;
    cpu->Restart();
    cpu->RunAll(one.TeacherForced(), kChunk, 0, [&](const std::vector<double>& logits) {
      kl += FullKl(exact[at], logits);
      differ += ArgMax(exact[at]) != ArgMax(logits) ? 1 : 0;
      ++at;
    });
    positions += exact.size();
  }
  const nlohmann::json row = {{"name", "mean_kl_to_reference"},
                              {"value", kl / static_cast<double>(positions)},
                              {"unit", "nats"},
                              {"positions", positions},
                              {"greedy_differs", differ}};
  std::cout << row.dump() << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton::golden

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = baton::golden::Run();
  if (status.ok()) return 0;
  std::cerr << status << "\n";
  return 1;
}
