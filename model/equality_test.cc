// The invariant of DESIGN section 7 on whole models: prefill of n tokens = n decode steps = any
// chunking, alone or in a crowd, on any number of threads: the same bytes in every KV block and
// every logit.
#include <algorithm>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "model/load.h"
#include "model/model_harness.h"
#include "model/quantize.h"
#include "model/tiny_model.h"
#include "model/tiny_vocab.h"

namespace baton::model {
namespace {

constexpr uint32_t kLength = 100;

struct Outcome {
  std::vector<std::vector<double>> logits;  // of every position
  std::string kv;
  bool operator==(const Outcome&) const = default;
};

std::vector<TokenId> RandomTokens(uint64_t seed, size_t count) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % TinyVocabSize());
  return tokens;
}

struct Arithmetic {
  std::string backend;
  std::string kv_type = "auto";
  friend std::ostream& operator<<(std::ostream& out, const Arithmetic& self) {
    return out << self.backend << " with kv " << self.kv_type;
  }
};

std::unique_ptr<ModelHarness> Harness(const std::string& path, const Arithmetic& arithmetic,
                                      uint32_t threads, uint32_t sequences = 1) {
  ModelHarness::Options options;
  options.load.path = path;
  options.load.backend = arithmetic.backend;
  options.load.kv_type = arithmetic.kv_type;
  options.load.threads = threads;
  options.max_rows = 256;
  options.sequences = sequences;
  options.positions = 128;
  auto harness = ModelHarness::Create(options);
  EXPECT_TRUE(harness.ok()) << harness.status();
  return harness.ok() ? *std::move(harness) : nullptr;
}

Outcome InChunks(ModelHarness& harness, const std::vector<TokenId>& tokens, uint32_t chunk) {
  harness.Restart();
  Outcome outcome;
  harness.RunAll(tokens, chunk, 0,
                 [&](std::vector<double> row) { outcome.logits.push_back(std::move(row)); });
  outcome.kv = harness.KvBytes(0);
  return outcome;
}

class EqualityTest : public ::testing::TestWithParam<std::tuple<Arithmetic, GgufTensorType>> {
 protected:
  void SetUp() override {
    TinyModelOptions options;
    options.matrices = std::get<1>(GetParam());
    options.embedding =
        options.matrices == GgufTensorType::kQ4_1 ? GgufTensorType::kQ8_0 : options.matrices;
    options.tied_head = options.matrices != GgufTensorType::kF16;
    path_ = ::testing::TempDir() + "equality.gguf";
    ASSERT_TRUE(WriteTinyModel(options, path_).ok());
  }
  const Arithmetic& arithmetic() const { return std::get<0>(GetParam()); }

  std::string path_;
};

TEST_P(EqualityTest, AnyChunkingOnAnyThreadsGivesTheSameBytes) {
  const std::vector<TokenId> tokens = RandomTokens(7, kLength);
  const auto one_thread = Harness(path_, arithmetic(), 1);
  const Outcome whole = InChunks(*one_thread, tokens, kLength);
  for (const uint32_t threads : {1u, 2u}) {
    const auto harness = Harness(path_, arithmetic(), threads);
    for (const uint32_t chunk : {1u, 7u, 16u, 64u, kLength}) {
      EXPECT_TRUE(InChunks(*harness, tokens, chunk) == whole)
          << "chunks of " << chunk << " on " << threads << " threads";
    }
  }
}

TEST_P(EqualityTest, ACrowdChangesNothing) {
  const std::vector<TokenId> tokens = RandomTokens(8, kLength);
  const auto alone = Harness(path_, arithmetic(), 1);
  const Outcome expected = InChunks(*alone, tokens, kLength);

  constexpr uint32_t kSequences = 9;
  const auto crowd = Harness(path_, arithmetic(), 2, kSequences);
  std::mt19937_64 random(9);
  std::vector<std::vector<double>> logits;
  size_t given = 0;
  while (given < tokens.size()) {
    std::vector<ModelHarness::Chunk> chunks;
    for (uint32_t sequence = 1; sequence < kSequences; ++sequence) {
      if (random() % 2 == 0) chunks.push_back({sequence, RandomTokens(random(), 1)});
    }
    const size_t count = std::min<size_t>(1 + random() % 20, tokens.size() - given);
    std::vector<uint32_t> rows(count);
    for (size_t i = 0; i < count; ++i) rows[i] = static_cast<uint32_t>(chunks.size() + i);
    const auto begin = tokens.begin() + static_cast<ptrdiff_t>(given);
    chunks.push_back({0, {begin, begin + static_cast<ptrdiff_t>(count)}});
    crowd->Run(chunks);
    crowd->Logits(rows, [&](std::vector<double> row) { logits.push_back(std::move(row)); });
    given += count;
  }
  EXPECT_TRUE(logits == expected.logits);
  EXPECT_TRUE(crowd->KvBytes(0) == expected.kv);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, EqualityTest,
    ::testing::Combine(::testing::Values(Arithmetic{"reference"}, Arithmetic{"cpu"},
                                         Arithmetic{"cpu", "int8"}, Arithmetic{"cpu-scalar"}),
                       ::testing::ValuesIn(kQuantizeFormats)));

// False where the processor lacks what the tier needs.
bool RunsHere(const std::string& path, const std::string& backend) {
  LoadOptions options;
  options.path = path;
  options.backend = backend;
  const absl::Status status = Load(options).status();
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kUnavailable) << status;
  return status.ok();
}

TEST(TierEqualityTest, EveryTierGivesTheBytesOfScalarCode) {
  const std::string path = ::testing::TempDir() + "tiers.gguf";
  const std::vector<TokenId> tokens = RandomTokens(11, kLength);
  for (const GgufTensorType type : kQuantizeFormats) {
    TinyModelOptions options;
    options.matrices = options.embedding = type;
    ASSERT_TRUE(WriteTinyModel(options, path).ok());
    for (const char* kv_type : {"f16", "int8"}) {
      const auto scalar = Harness(path, {"cpu-scalar", kv_type}, 1);
      const Outcome expected = InChunks(*scalar, tokens, kLength);
      for (const char* backend : {"cpu", "cpu-avx2", "cpu-avxvnni", "cpu-avx512"}) {
        if (!RunsHere(path, backend)) continue;
        const auto other = Harness(path, {backend, kv_type}, 2);
        EXPECT_EQ(other->model().numerics_id, scalar->model().numerics_id) << backend;
        EXPECT_TRUE(InChunks(*other, tokens, 16) == expected) << backend << " " << kv_type;
      }
    }
  }
}

TEST(TinyModelTest, OutputsDependOnThePrompt) {
  const std::string path = ::testing::TempDir() + "varied.gguf";
  ASSERT_TRUE(WriteTinyModel(TinyModelOptions(), path).ok());
  const auto harness = Harness(path, {"reference"}, 1);
  std::vector<TokenId> choices;
  double smallest_gap = 1e9;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<TokenId> tokens = RandomTokens(seed, 20);
    tokens.back() = 65;  // the same last token
    std::vector<double> logits = InChunks(*harness, tokens, 64).logits.back();
    const auto best = std::max_element(logits.begin(), logits.end());
    choices.push_back(static_cast<TokenId>(best - logits.begin()));
    std::nth_element(logits.begin(), logits.begin() + 1, logits.end(), std::greater<>());
    smallest_gap = std::min(smallest_gap, logits[0] - logits[1]);
  }
  std::sort(choices.begin(), choices.end());
  const auto distinct = std::unique(choices.begin(), choices.end()) - choices.begin();
  EXPECT_GE(distinct, 20) << "smallest gap " << smallest_gap;
}

}  // namespace
}  // namespace baton::model
