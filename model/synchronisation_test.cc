// How often threads wait for one another in a forward pass.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/model_harness.h"
#include "model/tiny_model.h"
#include "model/tiny_vocab.h"

namespace baton::model {
namespace {

constexpr uint32_t kLayers = 3;
constexpr uint32_t kPositions = 700;

class SynchronisationTest : public ::testing::TestWithParam<GgufTensorType> {
 protected:
  void SetUp() override {
    TinyModelOptions options;
    options.matrices = options.embedding = GetParam();
    options.layers = kLayers;
    options.context = kPositions;
    const std::string path = ::testing::TempDir() + "synchronisation.gguf";
    ASSERT_TRUE(WriteTinyModel(options, path).ok());
    ModelHarness::Options harness;
    harness.load.path = path;
    harness.load.threads = 2;
    harness.max_rows = 600;
    harness.positions = kPositions;
    auto created = ModelHarness::Create(harness);
    ASSERT_TRUE(created.ok()) << created.status();
    harness_ = *std::move(created);
  }

  uint64_t Count() const { return kernels::cpu::Synchronisations(*harness_->model().backend); }

  // Between the same places of one layer and the next: the most of all layers.
  uint64_t PerLayer(uint32_t rows) {
    std::vector<TokenId> tokens(rows);
    for (uint32_t i = 0; i < rows; ++i) tokens[i] = static_cast<TokenId>(i % TinyVocabSize());
    std::vector<uint64_t> counts;
    harness_->Run({{0, tokens}}, [&](uint32_t) { counts.push_back(Count()); });
    std::adjacent_difference(counts.begin(), counts.end(), counts.begin());
    return *std::max_element(counts.begin() + 1, counts.end());
  }

  std::unique_ptr<ModelHarness> harness_;
};

TEST_P(SynchronisationTest, ALayerTakesAtMostFiveForAnyNumberOfRowsAndContext) {
  for (const uint32_t rows : {1u, 2u, 4u, 7u, 32u, 64u, 600u}) {
    harness_->Restart();
    const uint64_t count = PerLayer(rows);
    EXPECT_LE(count, 5u) << rows << " rows";
    EXPECT_GE(count, 1u) << "nothing was counted";
  }
  EXPECT_LE(PerLayer(1), 5u) << "one row at context 600, which is split among threads";
}

INSTANTIATE_TEST_SUITE_P(Formats, SynchronisationTest,
                         ::testing::Values(GgufTensorType::kF16, GgufTensorType::kQ8_0,
                                           GgufTensorType::kQ4_1));

}  // namespace
}  // namespace baton::model
