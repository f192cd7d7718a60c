// A real model on virtual time: the whole step is computed inside one event of the executor, so
// that a simulated cluster repeats itself exactly.
#ifndef BATON_TESTS_EQUALITY_INLINE_MODEL_RUNNER_H_
#define BATON_TESTS_EQUALITY_INLINE_MODEL_RUNNER_H_

#include <cstdint>

#include "common/executor.h"
#include "engine/model_runner.h"
#include "kv/arena.h"
#include "model/load.h"
#include "model/step_runner.h"

namespace baton {

// Runners on one thread may share a model.
class InlineModelRunner final : public engine::ModelRunner {
 public:
  // All must outlive the runner; nothing posted to `executor` may run after it.
  InlineModelRunner(model::LoadedModel& model, kv::KvArena& kv, Executor& executor,
                    uint32_t max_rows)
      : executor_(executor), step_runner_(model, kv.view(), kv.seals(), max_rows) {}

  void SetListener(Listener* listener) override { listener_ = listener; }
  void Submit(engine::Step step) override;

 private:
  void Run(const engine::Step& step);

  Executor& executor_;
  model::StepRunner step_runner_;
  Listener* listener_ = nullptr;
  TimerHandle step_;
};

}  // namespace baton

#endif  // BATON_TESTS_EQUALITY_INLINE_MODEL_RUNNER_H_
