// One step of the engine on a loaded model, start to end on the caller's thread.
#ifndef BATON_MODEL_STEP_RUNNER_H_
#define BATON_MODEL_STEP_RUNNER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/model_runner.h"
#include "kv/layout.h"
#include "kv/piece_seals.h"
#include "model/load.h"
#include "model/transformer.h"

namespace baton::model {

// Not thread-safe; steps run on the one thread that uses the model's backend.
class StepRunner {
 public:
  // Steps of at most `max_rows` tokens. `seals` may be null; else every block that a step
  // completes, and the last one of a prompt that ends in several tokens, is sealed layer by layer
  // before `layer_stored` is called. All must outlive the runner.
  StepRunner(LoadedModel& model, const kv::KvView& kv, kv::PieceSeals* seals, uint32_t max_rows);

  // A step that breaks the contract of StepItem (ids, positions, tables, rows) ends with INTERNAL.
  engine::StepResult Run(const engine::Step& step, const Transformer::LayerStored& layer_stored);

 private:
  absl::Status Check(const engine::Step& step) const;
  absl::Status CheckItem(const engine::StepItem& item) const;
  absl::Status CheckAsked(const engine::StepItem& item) const;
  absl::Status CheckTables(const engine::StepItem& item) const;
  void SealLayer(const engine::Step& step, uint32_t layer);
  std::vector<engine::ItemResult> SampleItems(const engine::Step& step);

  LoadedModel& model_;
  const kv::KvView& kv_;
  kv::PieceSeals* const seals_;
  Transformer transformer_;
};

}  // namespace baton::model

#endif  // BATON_MODEL_STEP_RUNNER_H_
