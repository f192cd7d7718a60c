// The worker's engine, with the events of each sequence going to whoever added it.
#ifndef BATON_WORKER_ENGINE_MUX_H_
#define BATON_WORKER_ENGINE_MUX_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "engine/engine.h"
#include "engine/room_holder.h"
#include "kv/block_pool.h"
#include "kv/prefix_cache.h"

namespace baton::worker {

// May remove its sequence, and die, in any of these calls.
class SequenceOwner {
 public:
  virtual ~SequenceOwner() = default;
  // Of a kPrefillOnly sequence.
  virtual void OnLayerReady(uint32_t /*layer*/, uint32_t /*tokens*/) {}
  // engine::Engine::Listener::OnPromptLogprobs.
  virtual void OnPromptLogprobs(uint32_t position, std::vector<TokenLogprobs> logprobs) = 0;
  virtual void OnToken(const engine::TokenEvent& event) = 0;
  // It has left the engine.
  virtual void OnSequenceFailed(const absl::Status& status) = 0;
};

// Owner thread: the executor's.
class EngineMux : private engine::Engine::Listener {
 public:
  struct Environment {
    const Vocab& vocab;
    Executor& executor;
    engine::ModelRunner& runner;
    kv::BlockPool& pool;
    engine::EngineMetrics& metrics;
    std::function<void()> on_step_end;
    // See Engine::Environment.
    kv::PrefixCache* cache = nullptr;
    engine::RoomHolder* others = nullptr;
    std::function<void()> on_room = nullptr;
    std::function<uint32_t()> coming = nullptr;
  };
  EngineMux(const engine::EngineOptions& options, const Environment& environment);

  // `owner` must outlive the sequence: until Remove, its failure or (kGenerate) the last token of
  // its last choice.
  absl::StatusOr<engine::SequenceId> Add(engine::NewSequence sequence, SequenceOwner& owner);
  void Remove(engine::SequenceId sequence);

  const kv::GroupBlocks& Blocks(engine::SequenceId sequence) { return engine_.Blocks(sequence); }
  std::optional<uint32_t> Spare() const { return engine_.Spare(); }
  std::optional<uint32_t> OnBlocksFreed() { return engine_.OnBlocksFreed(); }
  void SetWaitingForRoom(uint32_t requests) { engine_.SetWaitingForRoom(requests); }
  engine::EngineLoad Load() const { return engine_.Load(); }
  uint32_t PromptsOfAStep() const { return engine_.PromptsOfAStep(); }
  bool idle() const { return engine_.idle(); }

 private:
  struct Owned {
    SequenceOwner* owner = nullptr;
    engine::SequenceMode mode = engine::SequenceMode::kGenerate;
  };
  void OnLayerReady(engine::SequenceId sequence, uint32_t layer, uint32_t tokens) override;
  void OnPromptLogprobs(engine::SequenceId sequence, uint32_t position,
                        std::vector<TokenLogprobs> logprobs) override;
  void OnToken(const engine::TokenEvent& event) override;
  void OnSequenceFailed(engine::SequenceId sequence, absl::Status status) override;
  void OnStepEnd() override { on_step_end_(); }

  const std::function<void()> on_step_end_;
  std::map<engine::SequenceId, Owned> owners_;
  engine::Engine engine_;
};

}  // namespace baton::worker

#endif  // BATON_WORKER_ENGINE_MUX_H_
