// Runs the engine's steps on a loaded model, on a thread of its own.
#ifndef BATON_MODEL_MODEL_RUNNER_H_
#define BATON_MODEL_MODEL_RUNNER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

#include "common/executor.h"
#include "common/mutex.h"
#include "engine/model_runner.h"
#include "kv/layout.h"
#include "model/load.h"
#include "model/step_runner.h"

namespace baton::model {

// Construct, use and destroy on the executor's thread. The destructor lets the step in flight
// finish and drops its events.
class ModelRunner final : public engine::ModelRunner {
 public:
  struct Options {
    uint32_t max_rows = 64;           // tokens of one step: the engine's token budget
    kv::PieceSeals* seals = nullptr;  // of the arena of `kv`, where blocks are shipped from it
  };

  // All must outlive the runner. From now on only the runner's thread uses model's backend.
  ModelRunner(LoadedModel& model, const kv::KvView& kv, Executor& executor, const Options& options);
  ~ModelRunner() override;

  void SetListener(Listener* listener) override;
  // A step that breaks the contract of StepItem (ids, positions, tables, rows) ends with INTERNAL.
  void Submit(engine::Step step) override;

 private:
  void Run();
  engine::StepResult RunStep(const engine::Step& step);
  void PostLayerReady(engine::StepId step, uint32_t layer);

  const uint32_t layers_;
  Executor& executor_;
  Listener* listener_ = nullptr;       // executor's thread only
  const std::shared_ptr<bool> alive_;  // executor's thread only: guards late events
  StepRunner step_runner_;             // runner's thread only

  Mutex mutex_;
  CondVar wake_;
  std::deque<engine::Step> steps_ BATON_GUARDED_BY(mutex_);  // at most one
  bool stopping_ BATON_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::model

#endif  // BATON_MODEL_MODEL_RUNNER_H_
