#include "model/model_runner.h"

#include <pthread.h>

#include <utility>

#include "common/check.h"

namespace baton::model {
namespace {

// With fewer prompt tokens a step is over before shipping its first layers early could pay for
// waking the executor once per layer, beside threads that compute: its layers are announced
// together, at its end. Decodes are never shipped.
constexpr uint32_t kEarlyLayerRows = 16;

bool AnnouncesEarly(const engine::Step& step) {
  size_t rows = 0;
  for (const engine::StepItem& item : step.items) {
    if (item.tokens.size() > 1) rows += item.tokens.size();
  }
  return rows >= kEarlyLayerRows;
}

}  // namespace

ModelRunner::ModelRunner(LoadedModel& model, const kv::KvView& kv, Executor& executor,
                         const Options& options)
    : layers_(model.config.num_layers),
      executor_(executor),
      alive_(std::make_shared<bool>(true)),
      step_runner_(model, kv, options.seals, options.max_rows),
      thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "model-runner");
}

ModelRunner::~ModelRunner() {
  *alive_ = false;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.NotifyOne();
  }
  thread_.join();
}

void ModelRunner::SetListener(Listener* listener) { listener_ = listener; }

void ModelRunner::Submit(engine::Step step) {
  BATON_CHECK(listener_ != nullptr);
  MutexLock lock(mutex_);
  steps_.push_back(std::move(step));
  wake_.NotifyOne();
}

void ModelRunner::Run() {
  while (true) {
    engine::Step step;
    {
      MutexLock lock(mutex_);
      while (steps_.empty() && !stopping_) wake_.Wait(mutex_);
      if (stopping_) return;
      step = std::move(steps_.front());
      steps_.pop_front();
    }
    engine::StepResult result = RunStep(step);
    const uint32_t late_layers = result.status.ok() && !AnnouncesEarly(step) ? layers_ : 0;
    executor_.Post([this, alive = alive_, late_layers, result = std::move(result)]() mutable {
      if (!*alive) return;
      for (uint32_t layer = 0; layer < late_layers; ++layer) {
        listener_->OnLayerReady(result.id, layer);
      }
      listener_->OnStepDone(std::move(result));
    });
  }
}

engine::StepResult ModelRunner::RunStep(const engine::Step& step) {
  const bool early = AnnouncesEarly(step);
  return step_runner_.Run(step, [&](uint32_t layer) {
    if (early) PostLayerReady(step.id, layer);
  });
}

void ModelRunner::PostLayerReady(engine::StepId step, uint32_t layer) {
  executor_.Post([this, alive = alive_, step, layer] {
    if (*alive) listener_->OnLayerReady(step, layer);
  });
}

}  // namespace baton::model
