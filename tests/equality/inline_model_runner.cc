#include "tests/equality/inline_model_runner.h"

#include <chrono>
#include <utility>

#include "common/time.h"

namespace baton {
namespace {

// Virtual time passes with every step, so that requests that arrive meanwhile wait for the next.
constexpr Duration kStepCost = std::chrono::microseconds(200);

}  // namespace

void InlineModelRunner::Submit(engine::Step step) {
  step_ = executor_.PostAfter(kStepCost, [this, step = std::move(step)] { Run(step); });
}

void InlineModelRunner::Run(const engine::Step& step) {
  engine::StepResult result = step_runner_.Run(step, [&](uint32_t layer) {
    executor_.Post([this, id = step.id, layer] { listener_->OnLayerReady(id, layer); });
  });
  executor_.Post([this, result = std::move(result)] { listener_->OnStepDone(result); });
}

}  // namespace baton
