#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "sampling/logit_edits.h"

namespace baton::sampling {
namespace {

constexpr double kTwo32 = 0x1p32;

// The definition of the set, by sorting the whole row.
std::vector<uint64_t> MassesBySorting(const std::vector<float>& logits,
                                      const SamplingParams& params) {
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<uint64_t> mass(logits.size());
  for (size_t i = 0; i < mass.size(); ++i) {
    const auto temperature = static_cast<double>(params.temperature);
    mass[i] = static_cast<uint64_t>(std::exp((logits[i] - max) / temperature) * kTwo32);
  }
  size_t kept = order.size();
  if (params.top_k > 0) kept = std::min(kept, static_cast<size_t>(params.top_k));
  double total = 0;
  for (size_t i = 0; i < kept; ++i) total += static_cast<double>(mass[order[i]]);
  double sum = 0;
  for (size_t i = 0; i < kept && params.top_p < 1; ++i) {
    sum += static_cast<double>(mass[order[i]]);
    if (sum >= static_cast<double>(params.top_p) * total) kept = i + 1;
  }
  std::vector<uint64_t> result(logits.size());
  for (size_t i = 0; i < kept; ++i) {
    const uint64_t m = mass[order[i]];
    if (static_cast<double>(m) >= static_cast<double>(params.min_p) * kTwo32) result[order[i]] = m;
  }
  return result;
}

std::vector<float> RandomLogits(std::mt19937_64& random, size_t size, bool ties) {
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(size);
  for (float& logit : logits) {
    logit = normal(random);
    if (ties) logit = std::round(logit);
  }
  return logits;
}

TEST(SamplerTest, SetsEqualThoseOfAFullSort) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 400; ++round) {
    const auto logits = RandomLogits(random, 1 + random() % 3000, round % 3 == 0);
    SamplingParams params;
    params.temperature = 0.3f + 0.2f * static_cast<float>(random() % 8);
    if (random() % 2 == 0) params.top_k = static_cast<int32_t>(1 + random() % 100);
    if (random() % 2 == 0) params.top_p = 0.05f + 0.1f * static_cast<float>(random() % 9);
    if (random() % 2 == 0) params.min_p = 0.02f * static_cast<float>(random() % 9);
    const auto actual = SamplingMasses(logits, params);
    ASSERT_TRUE(actual.ok());
    const auto expected = MassesBySorting(logits, params);
    for (size_t id = 0; id < logits.size(); ++id) {
      // libm's exp and ours may differ in the last unit.
      ASSERT_NEAR(static_cast<double>((*actual)[id]), static_cast<double>(expected[id]), 1.0)
          << "round " << round << " id " << id;
    }
  }
}

TEST(SamplerTest, DrawWalksMassesByAscendingId) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    const auto logits = RandomLogits(random, 1 + random() % 5000, round % 2 == 0);
    SamplingParams params;
    params.temperature = 1;
    params.top_k = static_cast<int32_t>(random() % 60);
    const auto masses = *SamplingMasses(logits, params);
    const uint64_t total = std::accumulate(masses.begin(), masses.end(), uint64_t{0});
    const Uniform uniform = round == 0 ? ~Uniform{0} : random();
    auto left = static_cast<uint64_t>((static_cast<unsigned __int128>(uniform) * total) >> 64);
    size_t id = 0;
    for (; left >= masses[id]; ++id) left -= masses[id];
    EXPECT_EQ(*SampleToken(logits, params, uniform), static_cast<TokenId>(id));
    const std::vector<double> wide(logits.begin(), logits.end());
    EXPECT_EQ(*SampleToken(wide, params, uniform), static_cast<TokenId>(id));
  }
}

TEST(SamplerTest, DrawsFollowTheMasses) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.2f), std::log(0.3f),
                                     std::log(0.4f)};
  SamplingParams params;
  params.temperature = 1;
  int count[4] = {};
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) ++count[*SampleToken(logits, params, UniformAt(7, 0, i))];
  // Five standard deviations of a binomial count are below 800.
  for (int id = 0; id < 4; ++id) EXPECT_NEAR(count[id], kDraws * 0.1 * (id + 1), 800);
}

TEST(SamplerTest, GreedyTakesTheLowestIdAmongEquals) {
  SamplingParams params;
  params.temperature = 9.9e-6f;
  params.top_k = 1;
  const std::vector<float> logits = {1, 5, -2, 5, 5};
  EXPECT_EQ(*SampleToken(logits, params, ~Uniform{0}), 1);
  params.temperature = 0;
  EXPECT_EQ(*SampleToken(logits, params, 0), 1);
}

TEST(SamplerTest, GreedyFindsTheFirstLargestOfALongRow) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    auto logits = RandomLogits(random, 1 + random() % 9000, true);
    const auto first = std::max_element(logits.begin(), logits.end());
    EXPECT_EQ(*SampleToken(logits, SamplingParams{}, 0), first - logits.begin());
    logits[random() % logits.size()] = std::nanf("");
    EXPECT_FALSE(SampleToken(logits, SamplingParams{}, 0).ok());
  }
}

TEST(SamplerTest, ForbiddenTokensAreNeverDrawn) {
  constexpr float kNo = -std::numeric_limits<float>::infinity();
  SamplingParams params;
  params.temperature = 1;
  for (uint64_t i = 0; i < 100; ++i) {
    const std::vector<float> logits = {kNo, 0, kNo, 1, kNo};
    const TokenId token = *SampleToken(logits, params, UniformAt(1, 0, i));
    EXPECT_TRUE(token == 1 || token == 3);
  }
}

TEST(SamplerTest, RowsThatAreNoDistributionAreInternalErrors) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (float temperature : {0.0f, 1.0f}) {
    SamplingParams params;
    params.temperature = temperature;
    for (const auto& logits : {std::vector<float>{0, std::nanf(""), 1}, std::vector<float>{0, kInf},
                               std::vector<float>{-kInf, -kInf}, std::vector<float>{}}) {
      EXPECT_EQ(SampleToken(logits, params, 0).status().code(), absl::StatusCode::kInternal);
    }
  }
}

TEST(UniformTest, IsPhilox4x32With10Rounds) {
  // From an independent implementation; a change would break replays across versions.
  EXPECT_EQ(UniformAt(0, 0, 0), UniformAt(0, 0, 0));
  EXPECT_NE(UniformAt(0, 0, 0), UniformAt(0, 0, 1));
  EXPECT_NE(UniformAt(0, 0, 0), UniformAt(0, 1, 0));
  EXPECT_NE(UniformAt(0, 0, 0), UniformAt(1, 0, 0));
  EXPECT_EQ(UniformAt(0x0123456789abcdef, 2, 0x100000003), 0xbc7658c950ab353eu);
}

TEST(UniformTest, IsUniformOverPositions) {
  int count[16] = {};
  for (uint64_t position = 0; position < 160000; ++position)
    ++count[UniformAt(3, 0, position) >> 60];
  for (int n : count) EXPECT_NEAR(n, 10000, 500);
}

SamplingParams ParamsOf(const nlohmann::json& test) {
  SamplingParams params;
  params.temperature = 1;
  const auto& given = test["params"];
  const std::string sampler = test["sampler"];
  if (sampler == "temp" || sampler == "temp_ext") params.temperature = given["temp"];
  if (sampler == "top_k") params.top_k = given["k"];
  if (sampler == "top_p") params.top_p = given["p"];
  if (sampler == "min_p") params.min_p = given["p"];
  if (sampler == "penalties") {
    params.repetition_penalty = given["repeat_penalty"];
    params.frequency_penalty = given["alpha_frequency"];
    params.presence_penalty = given["alpha_presence"];
  }
  return params;
}

// The row as it is after the history of the case.
std::vector<float> LogitsOf(const nlohmann::json& test, const SamplingParams& params) {
  std::vector<float> logits;
  for (double p : test["probs"]) logits.push_back(static_cast<float>(std::log(p)));
  LogitEditor editor(params, {});
  for (TokenId token : test.value("last_tokens", std::vector<TokenId>())) editor.Accept(token);
  for (const LogitEdit& edit : editor.Edits({})) {
    logits[edit.token] = static_cast<float>(Edited(logits[edit.token], edit));
  }
  return logits;
}

class SamplerOracleTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* shared = std::getenv("BATON_SHARED");
    const char* ci = std::getenv("CI");
    if (shared == nullptr) {
      if (ci != nullptr && std::string(ci) == "true") FAIL() << "BATON_SHARED is not set";
      GTEST_SKIP() << "BATON_SHARED is not set: no sampling oracle";
    }
    std::ifstream file(std::string(shared) + "/oracles/sampling/sampling_vectors.json");
    ASSERT_TRUE(file.good());
    oracle_ = nlohmann::json::parse(file);
  }

  nlohmann::json oracle_;
};

TEST_F(SamplerOracleTest, ProbabilitiesEqualThoseOfAnIndependentSampler) {
  std::map<std::string, int> checked;
  for (const auto& test : oracle_["cases"]) {
    const std::string sampler = test["sampler"];
    static const std::set<std::string> kOurs = {"temp",  "temp_ext", "top_k",
                                                "top_p", "min_p",    "penalties"};
    if (!kOurs.contains(sampler)) continue;
    // temp_ext with delta 0 is temp; other deltas are no field of ours.
    if (sampler == "temp_ext" && test["params"]["delta"] != 0.0) continue;
    const SamplingParams params = ParamsOf(test);
    auto masses = *SamplingMasses(LogitsOf(test, params), params);
    const auto total =
        static_cast<double>(std::accumulate(masses.begin(), masses.end(), uint64_t{0}));
    std::sort(masses.rbegin(), masses.rend());
    const auto& expected = test["expected"];
    for (size_t i = 0; i < masses.size(); ++i) {
      const double wanted = i < expected.size() ? expected[i].get<double>() : 0.0;
      EXPECT_NEAR(static_cast<double>(masses[i]) / total, wanted, 1e-5) << test;
    }
    ++checked[sampler];
  }
  const std::map<std::string, int> expected = {{"temp", 2},  {"temp_ext", 2}, {"top_k", 4},
                                               {"top_p", 4}, {"min_p", 8},    {"penalties", 6}};
  EXPECT_EQ(checked, expected);
}

// Token i of n has probability i / sum: what each cut leaves is known in closed form.
size_t KeptOf(const nlohmann::json& test) {
  const auto n = test["n_vocab"].get<double>();
  const auto& given = test["params"];
  const std::string order = test["order"];
  double lowest = 1;  // token 0 has no probability
  if (order.find('k') != std::string::npos) lowest = std::max(lowest, n - double{given["k"]});
  if (order.find('p') != std::string::npos && given["p"] < 1.0) {
    // Shortest suffix lowest..n-1 whose sum is at least p of what top-k left.
    const auto sum_from = [n](double from) { return (n * (n - 1) - from * (from - 1)) / 2; };
    const double wanted = double{given["p"]} * sum_from(lowest);
    double from = n - 1;
    while (sum_from(from) < wanted) --from;
    lowest = std::max(lowest, from);
  }
  if (order.find('m') != std::string::npos) {
    lowest = std::max(lowest, std::ceil(double{given["min_p"]} * (n - 1) - 1e-6));
  }
  return static_cast<size_t>(n - lowest);
}

TEST_F(SamplerOracleTest, CutsInOurOrderKeepWhatTheChainOfTheOracleKeeps) {
  int checked = 0;
  for (const auto& test : oracle_["cases"]) {
    if (test["sampler"] != "queue") continue;
    const std::string order = test["order"];
    static const std::set<std::string> kOurs = {"k", "p", "m", "kp", "km", "pm", "kpm"};
    if (!kOurs.contains(order)) continue;
    std::vector<float> logits;
    for (int i = 0; i < test["n_vocab"]; ++i) logits.push_back(std::log(static_cast<float>(i)));
    SamplingParams params;
    params.temperature = 1;
    const auto& given = test["params"];
    if (order.find('k') != std::string::npos) params.top_k = given["k"];
    if (order.find('p') != std::string::npos) params.top_p = given["p"];
    if (order.find('m') != std::string::npos) params.min_p = given["min_p"];
    const auto masses = *SamplingMasses(logits, params);
    const size_t kept = KeptOf(test);
    size_t actual = 0;
    for (size_t i = 0; i < masses.size(); ++i) {
      if (masses[i] == 0) continue;
      ++actual;
      EXPECT_GE(i + kept + 1, masses.size()) << test;
    }
    // A mass on the edge of a cut may fall on either side: logits are fp32.
    EXPECT_NEAR(static_cast<double>(actual), static_cast<double>(kept), 1) << test;
    ++checked;
  }
  EXPECT_EQ(checked, 15);
}

}  // namespace
}  // namespace baton::sampling
