#include "model/model_runner.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/crc32c.h"
#include "common/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/arena.h"
#include "model/model_harness.h"
#include "model/tiny_model.h"
#include "sampling/logprobs.h"
#include "sampling/sampler.h"

namespace baton::model {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kMaxRows = 64;

// The test's thread is the executor's thread.
class QueueExecutor : public Executor {
 public:
  void Post(std::function<void()> task) override {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    wake_.NotifyOne();
  }
  TimerHandle PostAt(Time, std::function<void()>) override { return TimerHandle(); }
  Time Now() const override { return Time(); }

  void RunOne() {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty()) wake_.Wait(mutex_);
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
  bool RunOneIfAny() {
    {
      MutexLock lock(mutex_);
      if (tasks_.empty()) return false;
    }
    RunOne();
    return true;
  }

 private:
  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> tasks_ BATON_GUARDED_BY(mutex_);
};

struct Recorder : engine::ModelRunner::Listener {
  void OnLayerReady(engine::StepId step, uint32_t layer) override {
    events.push_back(std::to_string(step) + " layer " + std::to_string(layer));
  }
  void OnStepDone(engine::StepResult r) override {
    events.push_back(std::to_string(r.id) + " done");
    result = std::move(r);
    done = true;
  }
  std::vector<std::string> events;
  engine::StepResult result;
  bool done = false;
};

class ModelRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "runner.gguf";
    ASSERT_TRUE(WriteTinyModel(TinyModelOptions(), path_).ok());
    auto model = Load(Options());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    kv::KvArena::Options arena;
    arena.blocks = {16};
    arena.sealed = true;
    arena_ = *kv::KvArena::Create(model_.layout, arena);
    runner_ = std::make_unique<ModelRunner>(model_, arena_->view(), executor_,
                                            ModelRunner::Options{kMaxRows, arena_->seals()});
    runner_->SetListener(&recorder_);
  }

  LoadOptions Options() const {
    LoadOptions options;
    options.path = path_;
    options.backend = "reference";
    return options;
  }

  engine::StepItem Item(std::vector<TokenId> tokens) const {
    engine::StepItem item;
    item.tokens = std::move(tokens);
    item.block_tables = {{3, 1, 2, 0}};
    item.samples = {{}};
    return item;
  }

  engine::StepResult RunStep(std::vector<engine::StepItem> items) {
    engine::Step step;
    step.id = ++last_step_;
    step.items = std::move(items);
    return Run(std::move(step));
  }

  engine::StepResult Run(engine::Step step) {
    runner_->Submit(std::move(step));
    recorder_.done = false;
    for (turns_ = 0; !recorder_.done; ++turns_) executor_.RunOne();
    return recorder_.result;
  }

  std::vector<double> ExpectedLogits(const std::vector<TokenId>& tokens) {
    ModelHarness::Options options;
    options.load = Options();
    const auto harness = ModelHarness::Create(options);
    std::vector<double> last;
    (*harness)->RunAll(tokens, kMaxRows, static_cast<uint32_t>(tokens.size() - 1),
                       [&](std::vector<double> logits) { last = std::move(logits); });
    return last;
  }

  std::string path_;
  QueueExecutor executor_;
  Recorder recorder_;
  LoadedModel model_;
  std::unique_ptr<kv::KvArena> arena_;
  engine::StepId last_step_ = 0;
  uint32_t turns_ = 0;  // of the executor in the last step
  std::unique_ptr<ModelRunner> runner_;
};

TEST_F(ModelRunnerTest, SealsTheBlocksThatAreReadyToShip) {
  const uint32_t block_size = model_.layout.block_size;
  const auto sealed = [&](kv::BlockId block) {
    size_t right = 0;
    for (uint32_t layer = 0; layer < model_.layout.layers.size(); ++layer) {
      for (uint32_t arena = 0; arena < 2; ++arena) {
        const uint32_t crc = Crc32c(std::as_const(*arena_).Piece(layer, arena, block));
        right += arena_->seals()->Crc(layer, arena, block) == crc ? 1 : 0;
      }
    }
    return right == 2 * model_.layout.layers.size();
  };
  const auto broken = [&](kv::BlockId block) {
    for (uint32_t layer = 0; layer < model_.layout.layers.size(); ++layer) {
      if (arena_->seals()->Crc(layer, 0, block).has_value()) return false;
    }
    return true;
  };
  engine::StepItem chunk = Item(std::vector<TokenId>(block_size + 2, 5));  // into blocks 3 and 1
  chunk.samples = {};
  RunStep({chunk});
  EXPECT_TRUE(sealed(3));
  EXPECT_TRUE(broken(1));
  engine::StepItem last = Item({6, 7});
  last.start_position = block_size + 2;
  RunStep({last});
  EXPECT_TRUE(sealed(1));
  engine::StepItem decode = Item({8});
  decode.start_position = block_size + 4;
  RunStep({decode});
  EXPECT_TRUE(broken(1));
  engine::Step again;
  again.id = ++last_step_;
  again.zero_blocks = {{0, 3}};
  again.items = {Item({9})};
  again.items[0].block_tables = {{2}};
  again.items[0].samples = {};
  Run(std::move(again));
  EXPECT_TRUE(broken(3));
}

TEST_F(ModelRunnerTest, LayersAreReadyInOrderBeforeTheStepIsDone) {
  for (const size_t rows : {3u, 40u}) {  // announced at the end, and while the step runs
    recorder_.events.clear();
    const engine::StepResult result = RunStep({Item(std::vector<TokenId>(rows, 5))});
    ASSERT_TRUE(result.status.ok()) << result.status;
    const std::string id = std::to_string(result.id);
    EXPECT_THAT(recorder_.events,
                ::testing::ElementsAre(id + " layer 0", id + " layer 1", id + " done"));
  }
}

TEST_F(ModelRunnerTest, OnlyPromptsWakeTheExecutorForEveryLayer) {
  RunStep({Item(std::vector<TokenId>(40, 5))});
  EXPECT_EQ(turns_, model_.config.num_layers + 1);
  std::vector<engine::StepItem> decodes;
  for (uint32_t i = 0; i < 40; ++i) {
    decodes.push_back(Item({5}));
    decodes.back().start_position = i;
  }
  RunStep(std::move(decodes));
  EXPECT_EQ(turns_, 1u);
}

TEST_F(ModelRunnerTest, GreedyTokenIsTheLargestLogit) {
  const std::vector<TokenId> prompt = {10, 20, 30, 40, 50};
  const engine::StepResult result = RunStep({Item(prompt)});
  ASSERT_TRUE(result.status.ok()) << result.status;
  const std::vector<double> logits = ExpectedLogits(prompt);
  EXPECT_EQ(result.items[0].sampled[0].token,
            std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST_F(ModelRunnerTest, SampledTokenUsesTheUniformOfItsPosition) {
  const std::vector<TokenId> prompt = {10, 20, 30};
  const std::vector<double> logits = ExpectedLogits(prompt);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    engine::StepItem item = Item(prompt);
    item.sampling.temperature = 1.5f;
    item.sampling.seed = seed;
    item.samples = {{.choice = 2}};
    const engine::StepResult result = RunStep({item});
    ASSERT_TRUE(result.status.ok()) << result.status;
    const auto uniform = sampling::UniformAt(seed, 2, prompt.size());
    EXPECT_EQ(result.items[0].sampled[0].token,
              *sampling::SampleToken(logits, item.sampling, uniform));
  }
}

TEST_F(ModelRunnerTest, SeveralChoicesAreSampledFromOneRow) {
  const std::vector<TokenId> prompt = {10, 20, 30};
  const std::vector<double> logits = ExpectedLogits(prompt);
  engine::StepItem item = Item(prompt);
  item.sampling.temperature = 1.5f;
  item.sampling.seed = 7;
  item.top_logprobs = 1;
  item.samples.clear();
  for (const uint32_t choice : {0u, 1u, 5u, 15u}) item.samples.push_back({.choice = choice});
  const auto greedy =
      static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  item.samples.push_back({.choice = 5, .edits = {{.token = greedy, .forbidden = true}}});
  engine::StepItem other = Item({7});
  other.block_tables = {{8}};
  const engine::StepResult result = RunStep({item, other});
  ASSERT_TRUE(result.status.ok()) << result.status;
  ASSERT_EQ(result.items[0].sampled.size(), 5u);
  for (size_t i = 0; i < 4; ++i) {
    const auto uniform = sampling::UniformAt(7, item.samples[i].choice, prompt.size());
    const engine::SampledToken& sampled = result.items[0].sampled[i];
    EXPECT_EQ(sampled.token, *sampling::SampleToken(logits, item.sampling, uniform));
    EXPECT_EQ(sampled.logprobs, *sampling::LogprobsOf(logits, sampled.token, 1));
  }
  EXPECT_NE(result.items[0].sampled[4].token, greedy);
  EXPECT_EQ(result.items[1].sampled.size(), 1u);
}

// Two choices go on from one partly filled block.
TEST_F(ModelRunnerTest, BlocksAreCopiedInEveryLayerBeforeTheStepRuns) {
  const std::vector<TokenId> prompt = {10, 20, 30, 40, 50};
  engine::StepItem full = Item(std::vector<TokenId>(model_.layout.block_size, 9));
  full.block_tables = {{5}};
  RunStep({Item(prompt), full});
  engine::StepItem in_place = Item({60});
  in_place.start_position = 5;
  engine::StepItem in_copy = Item({70});
  in_copy.start_position = 5;
  in_copy.block_tables = {{5}};
  engine::Step step;
  step.id = ++last_step_;
  step.copy_blocks = {{0, 3, 5}};
  step.items = {in_place, in_copy};
  const engine::StepResult result = Run(step);
  ASSERT_TRUE(result.status.ok()) << result.status;
  for (size_t i = 0; i < 2; ++i) {
    std::vector<TokenId> tokens = prompt;
    tokens.push_back(i == 0 ? 60 : 70);
    const std::vector<double> logits = ExpectedLogits(tokens);
    EXPECT_EQ(result.items[i].sampled[0].token,
              std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
}

TEST_F(ModelRunnerTest, ACopyIsNotWhatWasSealed) {
  engine::StepItem full = Item(std::vector<TokenId>(model_.layout.block_size, 9));
  full.block_tables = {{5}};
  RunStep({Item({1}), full});
  ASSERT_TRUE(arena_->seals()->Crc(0, 0, 5).has_value());
  engine::Step step;
  step.id = ++last_step_;
  step.copy_blocks = {{0, 3, 5}};
  step.items = {Item({2})};
  step.items[0].block_tables = {{2}};
  ASSERT_TRUE(Run(step).status.ok());
  for (uint32_t layer = 0; layer < model_.layout.layers.size(); ++layer) {
    EXPECT_FALSE(arena_->seals()->Crc(layer, 0, 5).has_value());
  }
}

TEST_F(ModelRunnerTest, ChunksAndDecodeRowsOfSeveralSequencesShareAStep) {
  engine::StepItem first = Item({10, 20, 30, 40});
  first.samples = {};
  engine::StepItem second = Item({7});
  second.block_tables = {{8}};
  engine::StepResult result = RunStep({first, second});
  ASSERT_TRUE(result.status.ok()) << result.status;
  engine::StepItem rest = Item({50});
  rest.start_position = 4;
  second.tokens = {result.items[1].sampled[0].token};
  second.start_position = 1;
  result = RunStep({second, rest});
  const std::vector<double> logits = ExpectedLogits({10, 20, 30, 40, 50});
  EXPECT_EQ(result.items[1].sampled[0].token,
            std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST_F(ModelRunnerTest, BlocksAreZeroedBeforeTheStepRuns) {
  const auto piece = arena_->Piece(1, kv::kValueArena, 3);
  std::fill(piece.begin(), piece.end(), std::byte{0x55});
  engine::Step step;
  step.id = 9;
  step.zero_blocks = {{0, 3}};
  step.items = {Item({1})};
  runner_->Submit(step);
  while (!recorder_.done) executor_.RunOne();
  const size_t slot_zero_only = 16 * sizeof(double);  // head 0, slot 0
  EXPECT_TRUE(std::any_of(piece.begin(), piece.begin() + slot_zero_only,
                          [](std::byte b) { return b != std::byte{0}; }));
  EXPECT_TRUE(std::all_of(piece.begin() + slot_zero_only, piece.begin() + 16 * slot_zero_only,
                          [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(ModelRunnerTest, ABrokenStepEndsWithInternalAndTheNextOneRuns) {
  const auto expect_refused = [&](const engine::StepItem& item, const std::string& what) {
    const engine::StepResult result = RunStep({item});
    EXPECT_EQ(result.status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(result.status.message()), HasSubstr(what));
  };
  expect_refused(Item({}), "no tokens");
  expect_refused(Item({-1}), "token id -1");
  expect_refused(Item({100000}), "token id 100000");
  expect_refused(Item(std::vector<TokenId>(kMaxRows + 1, 1)), "block table too short");
  engine::StepItem too_many = Item(std::vector<TokenId>(kMaxRows + 1, 1));
  too_many.block_tables[0].push_back(5);
  expect_refused(too_many, "65 tokens, not in 1..64");
  engine::StepItem far = Item({1});
  far.start_position = model_.config.context_length;
  expect_refused(far, "past the context");
  EXPECT_TRUE(RunStep({Item({1})}).status.ok());
}

TEST_F(ModelRunnerTest, NoEventArrivesAfterTheRunnerIsGone) {
  engine::Step step;
  step.items = {Item({1, 2, 3})};
  runner_->Submit(step);
  runner_.reset();
  while (executor_.RunOneIfAny()) {
  }
  EXPECT_TRUE(recorder_.events.empty());
}

}  // namespace
}  // namespace baton::model
