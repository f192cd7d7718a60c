#include "benchmarks/engine_driver.h"

#include <string>

#include "gtest/gtest.h"
#include "model/load.h"
#include "model/tiny_model.h"
#include "text/vocab.h"
#include "text/vocab_from_gguf.h"

namespace baton::benchmarks {
namespace {

constexpr uint32_t kPositions = 2048;

class EngineDriverTest : public ::testing::Test {
 protected:
  EngineDriverTest() : model_(Loaded()), vocab_(VocabOf(model_)) {
    auto driver = EngineDriver::Create(model_, vocab_, {kPositions, 256});
    EXPECT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
  }

  static model::LoadedModel Loaded() {
    const std::string path = ::testing::TempDir() + "tiny.gguf";
    EXPECT_TRUE(model::WriteTinyModel({}, path).ok());
    model::LoadOptions options;
    options.path = path;
    return *model::Load(options);
  }
  static Vocab VocabOf(const model::LoadedModel& model) {
    return *Vocab::Create(*VocabDataFromGguf(*model.file));
  }

  Timeline Run(const std::vector<BenchSequence>& sequences, uint32_t step_tokens) {
    return Run(sequences, RunOptions{.step_tokens = step_tokens});
  }
  Timeline Run(const std::vector<BenchSequence>& sequences, const RunOptions& options) {
    auto timeline = driver_->Run(sequences, options);
    EXPECT_TRUE(timeline.ok()) << timeline.status();
    return *std::move(timeline);
  }

  model::LoadedModel model_;
  const Vocab vocab_;
  std::unique_ptr<EngineDriver> driver_;
};

TEST_F(EngineDriverTest, APromptIsCutIntoStepsAndTheLastOneSamples) {
  const Timeline timeline = Run({{.prompt = 100}}, 64);
  ASSERT_EQ(timeline.steps.size(), 2u);
  EXPECT_EQ(timeline.steps[0].tokens, 0u);
  EXPECT_EQ(timeline.steps[1].tokens, 1u);
  EXPECT_GT(timeline.steps[1].seconds, timeline.steps[0].seconds);
  EXPECT_EQ(timeline.work.macs.at(kAttentionMacs) % 2, 0u);
}

TEST_F(EngineDriverTest, FilledSequencesDecodeTogetherFromTheFirstStepOn) {
  const Timeline timeline =
      Run(std::vector<BenchSequence>(5, {.prompt = 40, .filled = true, .max_tokens = 9}), 64);
  ASSERT_EQ(timeline.steps.size(), 9u);  // the first tokens, which were there, and eight steps
  for (const StepEnd& step : timeline.steps) EXPECT_EQ(step.tokens, 5u);
  EXPECT_EQ(timeline.most_blocks, 5 * 3u);
  for (const SequenceTimes& one : timeline.sequences) EXPECT_GT(one.last_token, one.first_token);
}

TEST_F(EngineDriverTest, TheWorkOfDecodingDoesNotCountThePrompt) {
  const Work filled = Run({{.prompt = 40, .filled = true, .max_tokens = 9}}, 64).work;
  const Work whole = Run({{.prompt = 40, .max_tokens = 9}}, 64).work;
  const Work prompt = Run({{.prompt = 40, .max_tokens = 1}}, 64).work;
  for (const auto& [type, macs] : whole.macs) {
    EXPECT_EQ(macs, filled.macs.at(type) + prompt.macs.at(type)) << type;
  }
  EXPECT_EQ(whole.bytes, filled.bytes + prompt.bytes);
}

TEST_F(EngineDriverTest, ChoicesShareTheirPromptsBlocks) {
  const Timeline one = Run({{.prompt = 160, .max_tokens = 2, .choices = 4}}, 64);
  EXPECT_LT(one.most_blocks, 2 * 10u);
  EXPECT_EQ(one.steps.back().tokens, 4u);
}

TEST_F(EngineDriverTest, AGroupJoinsWhenTheOneBeforeHasEnded) {
  const std::vector<BenchSequence> three = {
      {.max_tokens = 9}, {.max_tokens = 3}, {.max_tokens = 9}};
  const Timeline grouped = Run(three, {.step_tokens = 64, .group = 2});
  EXPECT_EQ(grouped.steps.size(), 9 + 9u);
  EXPECT_GT(grouped.sequences[2].first_token, grouped.sequences[0].last_token);
  const Timeline joined = Run(three, {.step_tokens = 64, .max_running = 2});
  EXPECT_EQ(joined.steps.size(), 3 + 9u);
  EXPECT_LT(joined.sequences[2].first_token, joined.sequences[0].last_token);
}

TEST_F(EngineDriverTest, ASequenceThatArrivesLaterStartsLater) {
  const Timeline timeline =
      Run({{.max_tokens = 2}, {.max_tokens = 2, .arrival = 0.02}}, {.step_tokens = 64});
  EXPECT_GE(timeline.sequences[1].first_token, 0.02);
}

TEST_F(EngineDriverTest, WhatDoesNotFitIsAnErrorAndTheNextRunGoesOn) {
  EXPECT_FALSE(driver_->Run({{.prompt = 40}, {.prompt = kPositions}}, {.step_tokens = 64}).ok());
  EXPECT_FALSE(driver_->Run({}, {.step_tokens = 64}).ok());
  EXPECT_FALSE(driver_->Run({{.prompt = 0}}, {.step_tokens = 64}).ok());
  EXPECT_FALSE(driver_->Run({{.prompt = 40}}, {.step_tokens = 257}).ok());
  EXPECT_FALSE(driver_->Run({{.prompt = 40}}, {.step_tokens = 0}).ok());
  EXPECT_FALSE(
      driver_
          ->Run({{.max_tokens = 9}, {.prompt = kPositions, .arrival = 0.001}}, {.step_tokens = 64})
          .ok());
  EXPECT_FALSE(
      driver_
          ->Run({{.max_tokens = 1}, {.prompt = kPositions, .arrival = 0.05}}, {.step_tokens = 64})
          .ok());
  EXPECT_EQ(Run({{.prompt = 40}}, 64).steps.size(), 1u);
}

}  // namespace
}  // namespace baton::benchmarks
