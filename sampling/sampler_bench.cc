// Cost of choosing a token, beside what a sampler costs that builds an array of (id, logit,
// probability) over the vocabulary. One JSON row a line.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "sampling/sampler.h"

namespace baton::sampling {
namespace {

constexpr int kRounds = 15;

struct Entry {
  TokenId id;
  float logit;
  float probability;
};

// The usual chain: top-k by partial sort, softmax, top-p by a sort of the whole row, draw.
TokenId SampleByArray(const std::vector<float>& logits, const SamplingParams& params, double u) {
  std::vector<Entry> row(logits.size());
  for (size_t i = 0; i < row.size(); ++i) row[i] = {static_cast<TokenId>(i), logits[i], 0};
  const auto before = [](const Entry& a, const Entry& b) { return a.logit > b.logit; };
  if (params.temperature == 0) return std::min_element(row.begin(), row.end(), before)->id;
  if (params.top_k > 0) {
    std::partial_sort(row.begin(), row.begin() + params.top_k, row.end(), before);
    row.resize(static_cast<size_t>(params.top_k));
  } else if (params.top_p < 1) {
    std::sort(row.begin(), row.end(), before);
  }
  const float max = std::min_element(row.begin(), row.end(), before)->logit;
  float sum = 0;
  for (Entry& entry : row) {
    sum += entry.probability = std::exp((entry.logit - max) / params.temperature);
  }
  float kept = 0;
  size_t size = 0;
  while (size < row.size() && kept < params.top_p * sum) kept += row[size++].probability;
  auto left = static_cast<float>(u) * kept;
  size_t at = 0;
  while (at + 1 < size && left >= row[at].probability) left -= row[at++].probability;
  return row[at].id;
}

double MedianMicroseconds(const std::function<void()>& call) {
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

void Measure(const std::string& name, const std::vector<float>& logits,
             const SamplingParams& params) {
  int64_t sum = 0;  // so that nothing is left out
  uint64_t position = 0;
  const double ours =
      MedianMicroseconds([&] { sum += *SampleToken(logits, params, UniformAt(1, 0, ++position)); });
  const double theirs =
      MedianMicroseconds([&] { sum += SampleByArray(logits, params, 0.3 + 1e-3 * sum / 1e9); });
  const nlohmann::json row = {{"name", "sampling_" + name + "_" + std::to_string(logits.size())},
                              {"value", ours},
                              {"unit", "us"},
                              {"peer", "an array over the vocabulary"},
                              {"peer_value", theirs},
                              {"ratio", theirs / ours}};
  std::cout << row.dump() << std::endl;
}

void Run(size_t vocab) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(random);
  SamplingParams params;
  Measure("greedy", logits, params);
  params.temperature = 0.8f;
  Measure("temperature", logits, params);
  params.top_p = 0.9f;
  Measure("top_p", logits, params);
  params.top_k = 40;
  Measure("top_k_top_p", logits, params);
  params.top_p = 1;
  Measure("top_k", logits, params);
}

}  // namespace
}  // namespace baton::sampling

int main() {
  for (size_t vocab : {49152, 128256, 262144}) baton::sampling::Run(vocab);
  return 0;
}
