// The stand-in that computes on virtual time and the runner of the worker processes are one model:
// the same steps give the same events, tokens and KV bytes.
#include "tests/equality/inline_model_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/event_loop.h"
#include "common/sim_executor.h"
#include "kv/arena.h"
#include "model/load.h"
#include "model/model_runner.h"
#include "model/tiny_model.h"

namespace baton {
namespace {

constexpr uint32_t kMaxRows = 64;

// Events in order, results as text.
struct Recorder : engine::ModelRunner::Listener {
  void OnLayerReady(engine::StepId step, uint32_t layer) override {
    events.push_back(std::to_string(step) + " layer " + std::to_string(layer));
  }
  void OnStepDone(engine::StepResult result) override {
    std::string text = std::to_string(result.id) + " done: " + result.status.ToString();
    for (const engine::ItemResult& item : result.items) {
      for (const engine::SampledToken& sampled : item.sampled) {
        text += " " + std::to_string(sampled.token);
      }
    }
    events.push_back(text);
    if (on_done) on_done();
  }
  std::vector<std::string> events;
  std::function<void()> on_done;
};

struct Outcome {
  std::vector<std::string> events;
  std::string kv;
};

model::LoadedModel LoadTiny() {
  const std::string path = testing::TempDir() + "inline_runner.gguf";
  EXPECT_TRUE(model::WriteTinyModel({}, path).ok());
  model::LoadOptions options;
  options.path = path;
  return *model::Load(options);
}

std::unique_ptr<kv::KvArena> Arena(const model::LoadedModel& loaded) {
  kv::KvArena::Options options;
  options.blocks.assign(loaded.layout.groups.size(), 8);
  return *kv::KvArena::Create(loaded.layout, options);
}

std::string KvBytes(const model::LoadedModel& loaded, const kv::KvArena& arena) {
  std::string bytes;
  for (uint32_t layer = 0; layer < loaded.layout.layers.size(); ++layer) {
    for (const uint32_t which : {kv::kKeyArena, kv::kValueArena}) {
      for (kv::BlockId block = 0; block < arena.blocks(0); ++block) {
        const std::span<const std::byte> piece = arena.Piece(layer, which, block);
        bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      }
    }
  }
  return bytes;
}

engine::StepItem Item(std::vector<kv::BlockId> table, uint32_t start, uint32_t length) {
  engine::StepItem item;
  for (uint32_t i = start; i < start + length; ++i) {
    item.tokens.push_back(static_cast<TokenId>((i * i + 37 * i + table[0]) % 256));
  }
  item.start_position = start;
  item.block_tables = {std::move(table)};
  item.samples = {{.choice = start % 3}};
  item.sampling.temperature = start % 2 == 0 ? 0.0f : 0.9f;
  item.sampling.seed = 7 + start;
  return item;
}

// Short and long, mixed, and one that breaks the contract.
std::vector<engine::Step> Steps() {
  std::vector<engine::Step> steps(5);
  steps[0].zero_blocks = {{0, 3}, {0, 1}};
  steps[0].items = {Item({3, 1, 2}, 0, 5)};
  steps[1].items = {Item({3, 1, 2}, 5, 40)};
  steps[2].items = {Item({3, 1, 2}, 45, 1), Item({0, 5}, 0, 17)};
  steps[3].items = {Item({6}, 0, 17)};  // needs two blocks
  steps[4].items = {Item({0, 5}, 17, 1), Item({3, 1, 2}, 46, 1)};
  for (size_t i = 0; i < steps.size(); ++i) steps[i].id = i + 1;
  return steps;
}

Outcome OnVirtualTime(model::LoadedModel& loaded) {
  const auto arena = Arena(loaded);
  SimWorld world;
  SimExecutor executor(world, "worker");
  Recorder recorder;
  InlineModelRunner runner(loaded, *arena, executor, kMaxRows);
  runner.SetListener(&recorder);
  for (engine::Step& step : Steps()) {
    runner.Submit(std::move(step));
    EXPECT_TRUE(world.RunUntilIdle());
  }
  return {recorder.events, KvBytes(loaded, *arena)};
}

Outcome OnAThread(model::LoadedModel& loaded) {
  const auto arena = Arena(loaded);
  EventLoop loop(EventLoop::Options{});
  loop.Start();
  const auto on_loop = [&](const std::function<void()>& task) {
    std::promise<void> ran;
    loop.Post([&] {
      task();
      ran.set_value();
    });
    ran.get_future().wait();
  };
  Recorder recorder;
  std::unique_ptr<model::ModelRunner> runner;
  on_loop([&] {
    runner = std::make_unique<model::ModelRunner>(loaded, arena->view(), loop,
                                                  model::ModelRunner::Options{kMaxRows});
    runner->SetListener(&recorder);
  });
  for (engine::Step& step : Steps()) {
    std::promise<void> done;
    on_loop([&] {
      recorder.on_done = [&] { done.set_value(); };
      runner->Submit(std::move(step));
    });
    done.get_future().wait();
  }
  on_loop([&] { runner.reset(); });
  loop.Stop();
  return {recorder.events, KvBytes(loaded, *arena)};
}

TEST(InlineModelRunnerTest, IsTheModelOfTheWorkerProcesses) {
  model::LoadedModel loaded = LoadTiny();
  const Outcome inline_run = OnVirtualTime(loaded);
  const Outcome threaded = OnAThread(loaded);
  EXPECT_EQ(inline_run.events, threaded.events);
  EXPECT_TRUE(inline_run.kv == threaded.kv);
  ASSERT_EQ(inline_run.events.size(), 4 * (loaded.config.num_layers + 1) + 1);
  const auto failed = std::count_if(
      inline_run.events.begin(), inline_run.events.end(),
      [](const std::string& event) { return event.find("INTERNAL") != std::string::npos; });
  EXPECT_EQ(failed, 1);
}

}  // namespace
}  // namespace baton
