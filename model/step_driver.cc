#include "model/step_driver.h"

#include <numeric>
#include <utility>

#include "common/status_macros.h"

namespace baton::model {

absl::StatusOr<std::unique_ptr<StepDriver>> StepDriver::Create(LoadedModel& model,
                                                               uint32_t positions,
                                                               uint32_t max_rows) {
  kv::KvArena::Options options;
  options.blocks.assign(model.layout.groups.size(),
                        (positions + model.layout.block_size - 1) / model.layout.block_size);
  options.sealed = true;  // as a prefill worker's: what sealing costs belongs to the figures
  BATON_ASSIGN_OR_RETURN(auto arena, kv::KvArena::Create(model.layout, options));
  return std::unique_ptr<StepDriver>(new StepDriver(model, std::move(arena), max_rows));
}

StepDriver::StepDriver(LoadedModel& model, std::unique_ptr<kv::KvArena> arena, uint32_t max_rows)
    : arena_(std::move(arena)), table_(arena_->blocks(0)), loop_(EventLoop::Options{}) {
  std::iota(table_.begin(), table_.end(), 0);
  loop_.Start();
  OnLoop([&] {
    runner_ = std::make_unique<ModelRunner>(model, arena_->view(), loop_,
                                            ModelRunner::Options{max_rows, arena_->seals()});
    runner_->SetListener(this);
  });
}

StepDriver::~StepDriver() {
  OnLoop([this] { runner_.reset(); });
  loop_.Stop();
}

void StepDriver::OnLoop(std::function<void()> task) {
  std::promise<void> ran;
  loop_.Post([&] {
    task();
    ran.set_value();
  });
  ran.get_future().wait();
}

absl::StatusOr<TokenId> StepDriver::Step(std::vector<TokenId> tokens) {
  engine::StepItem item;
  item.start_position = position_;
  position_ += static_cast<uint32_t>(tokens.size());
  item.tokens = std::move(tokens);
  item.block_tables = {table_};
  item.samples = {{}};
  engine::Step step;
  step.id = ++last_step_;
  step.items.push_back(std::move(item));
  done_ = {};
  std::future<engine::StepResult> done = done_.get_future();
  loop_.Post([this, &step] { runner_->Submit(std::move(step)); });
  const engine::StepResult result = done.get();
  BATON_RETURN_IF_ERROR(result.status);
  BATON_RETURN_IF_ERROR(result.items[0].status);
  return result.items[0].sampled[0].token;
}

void StepDriver::OnStepDone(engine::StepResult result) { done_.set_value(std::move(result)); }

}  // namespace baton::model
