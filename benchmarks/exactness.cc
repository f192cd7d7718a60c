// How exact the cpu backend is, as JSON rows: whether its bits are those of the scalar tier, and
// how far its distributions and perplexities are from the published float64 forward pass.
#include <bit>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "common/decoder_state.h"
#include "common/status_macros.h"
#include "model/model_harness.h"
#include "tests/golden/comparison.h"
#include "tests/golden/oracle.h"
#include "tests/golden/perplexity.h"

ABSL_FLAG(std::string, model, "", "GGUF file");
ABSL_FLAG(std::string, oracles, "", "folder with the published numbers of that file");
ABSL_FLAG(std::string, backend, "cpu", "cpu or cpu-TIER, for kl and perplexity");
ABSL_FLAG(uint32_t, threads, 2, "threads");
ABSL_FLAG(std::vector<std::string>, figures, (std::vector<std::string>{"tier", "kl", "perplexity"}),
          "which of these");

namespace baton::benchmarks {
namespace {

using model::ModelHarness;
using nlohmann::json;

constexpr uint32_t kChunk = 256;
constexpr uint32_t kPositions = 2048;
// The scalar tier makes about ten rows a second.
constexpr uint32_t kTierPrompt = 96;
constexpr uint32_t kTierSteps = 8;

absl::StatusOr<std::unique_ptr<ModelHarness>> Harness(const std::string& backend) {
  return ModelHarness::CreateForOneSequence({.path = absl::GetFlag(FLAGS_model),
                                             .backend = backend,
                                             .threads = absl::GetFlag(FLAGS_threads),
                                             .context = kPositions},
                                            kChunk);
}

void Print(const json& row) { std::cout << row.dump() << std::endl; }

// Every bit of the logits of a prompt and of decode steps behind it, and then of the KV cache.
std::vector<uint64_t> BitsOf(ModelHarness& harness, std::string& kv) {
  std::vector<uint64_t> bits;
  const auto keep = [&](const std::vector<double>& logits) {
    for (const double logit : logits) bits.push_back(std::bit_cast<uint64_t>(logit));
  };
  std::vector<TokenId> prompt;
  for (uint32_t i = 0; i < kTierPrompt; ++i) {
    prompt.push_back(static_cast<TokenId>(i * 7919 % harness.model().config.vocab_size));
  }
  harness.Restart();
  harness.RunAll(prompt, kChunk, 0, keep);
  for (uint32_t step = 0; step < kTierSteps; ++step) {
    harness.Run({{0, {static_cast<TokenId>(step)}}});
    harness.Logits({0}, keep);
  }
  kv = harness.KvBytes(0);
  return bits;
}

// Each tier that this processor runs beside the scalar one.
absl::Status PrintTiers() {
  BATON_ASSIGN_OR_RETURN(const auto scalar, Harness("cpu-scalar"));
  std::string scalar_kv;
  const std::vector<uint64_t> expected = BitsOf(*scalar, scalar_kv);
  for (const char* tier : {"avx2", "avxvnni", "avx512"}) {
    const auto harness = Harness(std::string("cpu-") + tier);
    if (absl::IsUnavailable(harness.status())) continue;
    BATON_RETURN_IF_ERROR(harness.status());
    std::string kv;
    const bool logits_equal = BitsOf(**harness, kv) == expected;
    Print({{"figure", "tier"},
           {"tier", tier},
           {"rows", kTierPrompt + kTierSteps},
           {"equal", logits_equal && kv == scalar_kv},
           {"numerics", scalar->model().backend->numerics()}});
  }
  return absl::OkStatus();
}

absl::Status PrintKl(const std::string& oracles, ModelHarness& cpu) {
  BATON_ASSIGN_OR_RETURN(const auto cases, golden::ReadGreedyCases(oracles));
  golden::Comparison total;
  for (const golden::GreedyCase& one : cases) golden::CompareCase(one, kChunk, cpu, total);
  Print({{"figure", "kl"}, {"mean", total.MeanKl()}, {"positions", total.positions}});
  return absl::OkStatus();
}

absl::Status PrintPerplexity(const std::string& oracles, ModelHarness& cpu) {
  BATON_ASSIGN_OR_RETURN(const auto cases, golden::ReadPerplexityCases(oracles));
  for (const golden::PerplexityCase& one : cases) {
    BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                           golden::TokensOfText(*cpu.model().file, one.text_path));
    Print({{"figure", "perplexity"},
           {"text", one.text_path},
           {"window", one.window},
           {"tokens", tokens},
           {"value", golden::Perplexity(tokens, one.window, cpu)},
           {"reference", one.perplexity}});
  }
  return absl::OkStatus();
}

absl::Status RunAll() {
  const std::string oracles = absl::GetFlag(FLAGS_oracles);
  BATON_ASSIGN_OR_RETURN(const auto cpu, Harness(absl::GetFlag(FLAGS_backend)));
  for (const std::string& figure : absl::GetFlag(FLAGS_figures)) {
    if (figure == "tier") {
      BATON_RETURN_IF_ERROR(PrintTiers());
    } else if (figure == "kl") {
      BATON_RETURN_IF_ERROR(PrintKl(oracles, *cpu));
    } else if (figure == "perplexity") {
      BATON_RETURN_IF_ERROR(PrintPerplexity(oracles, *cpu));
    } else {
      return absl::InvalidArgumentError("--figures: no such figure: " + figure);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton::benchmarks

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = baton::benchmarks::RunAll();
  if (status.ok()) return 0;
  std::cerr << status << "\n";
  return 1;
}
