// Runs sequences through the engine as a worker does, with its scheduler, paged KV and sampler, on
// a loaded model, and keeps when each step ended: what the speed rows measure.
#ifndef BATON_BENCHMARKS_ENGINE_DRIVER_H_
#define BATON_BENCHMARKS_ENGINE_DRIVER_H_

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "benchmarks/work.h"
#include "common/decoder_state.h"
#include "common/event_loop.h"
#include "common/time.h"
#include "engine/engine.h"
#include "kv/arena.h"
#include "kv/block_pool.h"
#include "model/load.h"
#include "model/model_runner.h"
#include "text/vocab.h"

namespace baton::benchmarks {

struct BenchSequence {
  uint32_t prompt = 1;  // tokens; which ones does not matter to the speed
  // The prompt is in its blocks, with the keys and values that an earlier run left there, and the
  // first token is sampled: only decode steps are run.
  bool filled = false;
  uint32_t max_tokens = 1;  // sampled, by each choice; end tokens are ignored
  uint32_t choices = 1;
  SamplingParams sampling = {};
  double arrival = 0;  // seconds after the run began
};

struct RunOptions {
  uint32_t step_tokens = 512;  // of a step at most, up to max_rows
  uint32_t max_running = 256;  // choices
  // 0: a sequence joins when it arrives. Else request-level batching, which no worker does: so many
  // that wait join together once nothing runs.
  uint32_t group = 0;
};

struct StepEnd {
  double seconds = 0;   // since the run began
  uint32_t tokens = 0;  // sampled
};

struct SequenceTimes {
  double first_token = 0;  // seconds since the run began
  double last_token = 0;
};

struct Timeline {
  // In order. The first tokens of filled sequences come as a step of their own that costs nothing.
  std::vector<StepEnd> steps;
  std::vector<SequenceTimes> sequences;  // in the order of the request
  uint32_t most_blocks = 0;              // KV blocks in use at one time
  Work work;
};

// Used by one thread, which is not the event loop's.
class EngineDriver : private engine::Engine::Listener {
 public:
  struct Options {
    uint32_t positions = 0;  // room for so many in all, at least 1
    uint32_t max_rows = 0;   // the largest step, at least 1
  };

  // `model` and `vocab` must outlive the driver.
  static absl::StatusOr<std::unique_ptr<EngineDriver>> Create(model::LoadedModel& model,
                                                              const Vocab& vocab,
                                                              const Options& options);
  ~EngineDriver() override;

  // Until each has ended. INVALID_ARGUMENT, RESOURCE_EXHAUSTED: they cannot run. The first failure
  // is the run's.
  absl::StatusOr<Timeline> Run(const std::vector<BenchSequence>& sequences,
                               const RunOptions& options);

 private:
  struct Current;  // one Run

  EngineDriver(model::LoadedModel& model, const Vocab& vocab, std::unique_ptr<kv::KvArena> arena,
               const Options& options);
  void OnLoop(const std::function<void()>& task);
  absl::Status Begin(const std::vector<BenchSequence>& sequences, const RunOptions& options);
  void Arrive(size_t index);
  void Admit();
  absl::Status Add(size_t index);
  void Fail(absl::Status status);
  void Ended();
  void Done();
  void AddWork(const std::vector<BenchSequence>& sequences, Timeline& timeline) const;

  void OnLayerReady(engine::SequenceId, uint32_t, uint32_t) override {}
  void OnPromptLogprobs(engine::SequenceId, uint32_t, std::vector<TokenLogprobs>) override {}
  void OnToken(const engine::TokenEvent& event) override;
  void OnSequenceFailed(engine::SequenceId sequence, absl::Status status) override;
  void OnStepEnd() override;

  model::LoadedModel& model_;
  const Vocab& vocab_;
  const Options options_;
  const std::unique_ptr<kv::KvArena> arena_;
  const WorkModel work_;
  // From here on the loop's thread only.
  kv::BlockPool pool_;
  std::unique_ptr<Current> current_;
  EventLoop loop_;
  std::unique_ptr<model::ModelRunner> runner_;
};

}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_ENGINE_DRIVER_H_
