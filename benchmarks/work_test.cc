#include "benchmarks/work.h"

#include <span>
#include <string>

#include "gtest/gtest.h"
#include "model/tiny_model.h"

namespace baton::benchmarks {
namespace {

constexpr uint64_t kWidth = 64;
constexpr uint64_t kFeedForward = 128;
constexpr uint64_t kKvWidth = 32;
constexpr uint64_t kLayers = 2;
constexpr uint64_t kLayerMacs =
    kWidth * kWidth * 2 + kWidth * kKvWidth * 2 + kWidth * kFeedForward * 3;
constexpr uint64_t kPositionBytes = 10;

class WorkTest : public ::testing::Test {
 protected:
  explicit WorkTest(bool tied = true) {
    model::TinyModelOptions options;
    options.tied_head = tied;
    bytes_ = model::TinyModel(options).Serialize();
    file_ = *GgufReader::FromBytes(std::as_bytes(std::span(bytes_)), "tiny");
    config_ = *model::ReadModelConfig(*file_);
  }

  WorkModel Model() const { return WorkModel(*file_, config_, kPositionBytes); }
  uint64_t HeadMacs() const { return kWidth * config_.vocab_size; }

  std::string bytes_;
  std::unique_ptr<GgufReader> file_;
  model::ModelConfig config_;
};

class SeparateHeadTest : public WorkTest {
 protected:
  SeparateHeadTest() : WorkTest(false) {}
};

TEST_F(WorkTest, APromptMultipliesEveryRowByTheLayersAndTheLastByTheHead) {
  Work work;
  Model().Add({.first_position = 0, .rows = 3, .logit_rows = 1}, work);
  EXPECT_EQ(work.macs["Q4_1"], 3 * kLayers * kLayerMacs);
  EXPECT_EQ(work.macs["Q8_0"], HeadMacs());
  EXPECT_EQ(work.macs[kAttentionMacs], (1 + 2 + 3) * 2 * kLayers * kWidth);
  EXPECT_EQ(work.bytes, 0u);
}

TEST_F(WorkTest, DecodeRowsReadAllKeysBeforeThemAndTheirOwn) {
  Work work;
  Model().Add({.first_position = 100, .rows = 2, .logit_rows = 2, .decode = true}, work);
  EXPECT_EQ(work.macs[kAttentionMacs], (101 + 102) * 2 * kLayers * kWidth);
  EXPECT_EQ(work.bytes, (101 + 102) * kPositionBytes);
}

TEST_F(WorkTest, StepsReadTheLayersAndThoseThatSampleTheHead) {
  Work one, other;
  Model().AddSteps(1, 0, one);
  Model().AddSteps(1, 1, other);
  EXPECT_EQ(one.bytes, kLayers * kLayerMacs / 32 * 20);      // a Q4_1 block
  EXPECT_EQ(other.bytes - one.bytes, HeadMacs() / 32 * 34);  // a Q8_0 block
}

TEST_F(SeparateHeadTest, AnEmbeddingThatIsNotTheHeadIsNoWork) {
  Work work;
  Model().Add({.first_position = 0, .rows = 1, .logit_rows = 1}, work);
  EXPECT_EQ(work.macs["Q8_0"], HeadMacs());
}

}  // namespace
}  // namespace baton::benchmarks
