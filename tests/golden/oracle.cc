#include "tests/golden/oracle.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/status_macros.h"

namespace baton::golden {
namespace {

using nlohmann::json;

absl::StatusOr<json> ReadJson(const std::string& folder, const std::string& what) {
  const std::string path = folder + "/smollm2-135m-instruct-q4_1_" + what + ".json";
  std::ifstream file(path);
  if (!file) return absl::NotFoundError("cannot open " + path);
  json parsed = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return absl::InvalidArgumentError(path + " is not JSON");
  return parsed;
}

ExpectedStep ReadStep(const json& step) {
  ExpectedStep expected;
  for (const json& entry : step["top"]) {
    expected.top.emplace_back(entry[0].get<TokenId>(), entry[1].get<double>());
  }
  expected.logsumexp = step["logsumexp"];
  return expected;
}

double XLogXOverY(double x, double y) { return x > 0 ? x * std::log(x / y) : 0; }

}  // namespace

std::vector<TokenId> GreedyCase::TeacherForced() const {
  std::vector<TokenId> tokens = prompt;
  tokens.insert(tokens.end(), greedy.begin(), greedy.end() - 1);
  return tokens;
}

absl::StatusOr<std::vector<GreedyCase>> ReadGreedyCases(const std::string& folder) {
  BATON_ASSIGN_OR_RETURN(const json file, ReadJson(folder, "greedy"));
  std::vector<GreedyCase> cases;
  for (const json& entry : file["cases"]) {
    GreedyCase one;
    one.prompt = entry["prompt_tokens"].get<std::vector<TokenId>>();
    one.greedy = entry["greedy"].get<std::vector<TokenId>>();
    for (const json& step : entry["steps"]) one.steps.push_back(ReadStep(step));
    if (one.steps.size() != one.greedy.size()) {
      return absl::InvalidArgumentError("a case has another number of steps than tokens");
    }
    cases.push_back(std::move(one));
  }
  std::stable_sort(cases.begin(), cases.end(), [](const GreedyCase& a, const GreedyCase& b) {
    return a.prompt.size() + a.greedy.size() < b.prompt.size() + b.greedy.size();
  });
  return cases;
}

absl::StatusOr<LayersCase> ReadLayersCase(const std::string& folder) {
  BATON_ASSIGN_OR_RETURN(const json file, ReadJson(folder, "layers"));
  LayersCase layers;
  layers.prompt = file["prompt_tokens"].get<std::vector<TokenId>>();
  for (const json& entry : file["hidden"]) {
    layers.layers.push_back({entry["after_layer"].get<int>(),
                             entry["first16"].get<std::vector<double>>(),
                             entry["l2"].get<double>()});
  }
  return layers;
}

absl::StatusOr<std::vector<PerplexityCase>> ReadPerplexityCases(const std::string& folder) {
  BATON_ASSIGN_OR_RETURN(const json file, ReadJson(folder, "perplexity"));
  std::vector<PerplexityCase> cases;
  for (const json& entry : file) {
    cases.push_back({entry["text"].get<std::string>(), entry["tokens"].get<uint32_t>(),
                     entry["window"].get<uint32_t>(), entry["perplexity"].get<double>()});
  }
  return cases;
}

double LogSumExp(const std::vector<double>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - max);
  return max + std::log(sum);
}

TokenId ArgMax(const std::vector<double>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double NineOutcomeKl(const ExpectedStep& expected, const std::vector<double>& logits) {
  const double normalizer = LogSumExp(logits);
  double kl = 0, expected_rest = 1, actual_rest = 1;
  for (const auto& [token, logit] : expected.top) {
    const double p = std::exp(logit - expected.logsumexp);
    const double q = std::exp(logits[static_cast<size_t>(token)] - normalizer);
    kl += XLogXOverY(p, q);
    expected_rest -= p;
    actual_rest -= q;
  }
  // The listed numbers are rounded: what is left may come out a hair below zero.
  return kl + XLogXOverY(std::max(expected_rest, 0.0), std::max(actual_rest, 1e-12));
}

double FullKl(const std::vector<double>& expected, const std::vector<double>& actual) {
  const double p_normalizer = LogSumExp(expected), q_normalizer = LogSumExp(actual);
  double kl = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double log_p = expected[i] - p_normalizer, log_q = actual[i] - q_normalizer;
    kl += std::exp(log_p) * (log_p - log_q);
  }
  return kl;
}

}  // namespace baton::golden
