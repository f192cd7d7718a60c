// Runs steps one after another and waits for each: a ModelRunner for tools, without an engine.
#ifndef BATON_MODEL_STEP_DRIVER_H_
#define BATON_MODEL_STEP_DRIVER_H_

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "common/event_loop.h"
#include "engine/model_runner.h"
#include "kv/arena.h"
#include "model/load.h"
#include "model/model_runner.h"

namespace baton::model {

// One sequence over its own blocks. Used by one thread, which is not the event loop's.
class StepDriver : private engine::ModelRunner::Listener {
 public:
  // Room for `positions` tokens; steps of at most `max_rows`. `model` must outlive the driver.
  static absl::StatusOr<std::unique_ptr<StepDriver>> Create(LoadedModel& model, uint32_t positions,
                                                            uint32_t max_rows);
  ~StepDriver() override;

  // The next tokens go to position 0 again.
  void Restart() { position_ = 0; }

  // One step with these tokens; the greedy next token.
  absl::StatusOr<TokenId> Step(std::vector<TokenId> tokens);

 private:
  StepDriver(LoadedModel& model, std::unique_ptr<kv::KvArena> arena, uint32_t max_rows);
  void OnLayerReady(engine::StepId, uint32_t) override {}
  void OnStepDone(engine::StepResult result) override;
  void OnLoop(std::function<void()> task);

  const std::unique_ptr<kv::KvArena> arena_;
  std::vector<kv::BlockId> table_;
  uint32_t position_ = 0;
  engine::StepId last_step_ = 0;
  std::promise<engine::StepResult> done_;
  EventLoop loop_;
  std::unique_ptr<ModelRunner> runner_;  // made, used and destroyed on the loop
};

}  // namespace baton::model

#endif  // BATON_MODEL_STEP_DRIVER_H_
