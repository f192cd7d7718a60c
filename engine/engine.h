// Iteration-level scheduling of sequences over a ModelRunner: the core of every worker. Owner
// thread: the executor's; no call blocks and no listener is called inside a call to the engine.
#ifndef BATON_ENGINE_ENGINE_H_
#define BATON_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "common/executor.h"
#include "common/step_times.h"
#include "common/time.h"
#include "engine/engine_metrics.h"
#include "engine/model_runner.h"
#include "engine/new_sequence.h"
#include "engine/room_by_age.h"
#include "engine/room_holder.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step_planner.h"
#include "kv/block_pool.h"
#include "kv/prefix_cache.h"
#include "kv/sliding_windows.h"
#include "text/vocab.h"

namespace baton::engine {

struct EngineOptions {
  uint32_t step_tokens = 64;      // most tokens of a step
  Duration planned_step{0};       // of prompts alone; zero: filled. See StepPlannerOptions
  uint32_t max_running = 64;      // choices that decode or prefill at once; others wait by age
  uint32_t context_length = 0;    // of the model; required
  uint32_t block_size = 16;       // slots of a KV block, power of two
  kv::SlidingWindows windows{};   // of the KV groups, for step_tokens; with one there is no cache
  absl::Status Validate() const;  // INVALID_ARGUMENT naming the option
};

struct EngineLoad {
  uint32_t running = 0;                  // in the batch
  uint32_t choices = 0;                  // of those, that are not over
  uint32_t waiting = 0;                  // added, not started, or preempted
  uint32_t preempted = 0;                // of those
  uint64_t queued_prefill_tokens = 0;    // of running and waiting ones, still to be computed
  StepWork decodes{};                    // of the batch's next step
  StepTimes step_times{};                // fitted to the steps so far
  double prefill_tokens_per_second = 0;  // predicted as things stand; 0: nothing is measured yet
  uint64_t prompt_steps = 0;             // StepTimeModel::prompt_steps
  double decode_step_seconds = 0;        // StepPlanner::DecodeStepSeconds
};

class Engine final : public ModelRunner::Listener {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // kPrefillOnly sequences: layer `layer` is in the blocks for positions [0, tokens). Called once
    // per layer of each chunk, in order of layers; for the last chunk before its OnToken.
    virtual void OnLayerReady(SequenceId sequence, uint32_t layer, uint32_t tokens) = 0;
    // Of the prompt's tokens from `position` on, in order, each once, before the first OnToken.
    // Only when the state asks for them; a state that brings them has them repeated.
    virtual void OnPromptLogprobs(SequenceId sequence, uint32_t position,
                                  std::vector<TokenLogprobs> logprobs) = 0;
    // One sampled token, of each choice positions without a gap; the first ones of all choices come
    // one after the other. A sequence that came with sampled tokens begins by repeating them. With
    // a finish reason it is the choice's last, and its own blocks are given back; with `last` no
    // choice goes on: a kGenerate sequence has left the engine, a kPrefillOnly one stays until
    // Remove in any case.
    virtual void OnToken(const TokenEvent& event) = 0;
    // The sequence has left the engine. INTERNAL: its logits were NaN or its step failed;
    // DEADLINE_EXCEEDED.
    virtual void OnSequenceFailed(SequenceId sequence, absl::Status status) = 0;
    // Once after all events of a step (or of a turn without one): the moment to send one message.
    virtual void OnStepEnd() = 0;
  };

  // All must outlive the engine.
  struct Environment {
    const Vocab& vocab;
    Executor& executor;
    ModelRunner& runner;  // the engine becomes its listener
    kv::BlockPool& pool;
    EngineMetrics& metrics;
    Listener& listener;
    kv::PrefixCache* cache = nullptr;  // over `pool`; null: every chain is closed
    RoomHolder* others = nullptr;      // who may be asked for blocks as well; null: nobody
    // Called when the sequences here wait for no blocks any more: others may take some again. May
    // only Post. Null: nobody asks.
    std::function<void()> on_room = nullptr;
    // Choices that will join and whose prompts somebody else computes on the cores of this engine:
    // it leaves them its cores between steps while it has few of its own (docs/decisions/0028).
    // Null: none ever.
    std::function<uint32_t()> coming = nullptr;
  };
  Engine(const EngineOptions& options, const Environment& environment);

  // INVALID_ARGUMENT, naming the field, when it cannot be run (CheckNewSequence, lease too small).
  absl::StatusOr<SequenceId> Add(NewSequence sequence);

  // Ends it without an event, in any state; blocks are free at once, or when the step in flight
  // that names them ends. Unknown or finished ids are ignored.
  void Remove(SequenceId sequence);

  // The blocks of a kPrefillOnly sequence, by position: of the lease that it came with. To be asked
  // when they are filled (OnLayerReady): when the step has ended, what no later token sees is gone
  // from a group with a window, and the cache may have put equal blocks in the places of others.
  const kv::GroupBlocks& Blocks(SequenceId sequence);

  // How many blocks of each group others are to leave free (RoomByAge::Spare). Absent: sequences
  // here wait for blocks, and nobody else may be granted any until on_room.
  std::optional<uint32_t> Spare() const;
  // The same; to be called when blocks of the pool became free, in a turn of its own: sequences
  // that wait take them first.
  std::optional<uint32_t> OnBlocksFreed();

  // Requests that wait for blocks at the owner's, so that Load and the gauges count them.
  void SetWaitingForRoom(uint32_t requests);
  EngineLoad Load() const;
  // Prompt tokens of a step without decodes, as things stand.
  uint32_t PromptsOfAStep() const { return planner_.PromptsAlone(0); }
  // Brings the gauges up to date; the engine does after each step and change of its own. Call it
  // after taking or freeing blocks elsewhere.
  void UpdateGauges();
  bool idle() const { return sequences_.empty() && !in_flight_.has_value(); }

  // ModelRunner::Listener.
  void OnLayerReady(StepId step, uint32_t layer) override;
  void OnStepDone(StepResult result) override;

 private:
  struct InFlight {
    StepId id = 0;
    std::vector<ScheduledItem> items;
    StepWork work;
    kv::BlockPin pin;
    Time started;
  };

  // What was already there when a sequence joined.
  struct Replay {
    SequenceId sequence = 0;
    std::vector<TokenLogprobs> prompt_logprobs;
    std::vector<TokenEvent> tokens;
  };

  void Poke();
  void Turn();
  bool EmitReplays();
  void SettleRoom();
  void StartStep();
  bool Rests(StepOutlook outlook);
  std::vector<Candidate> Candidates() const;
  Step BuildStep(const std::vector<ScheduledItem>& plan);
  StepItem PromptItem(Sequence& sequence, const ScheduledItem& scheduled, Step& step);
  StepItem ChoiceItem(Sequence& sequence, const ScheduledItem& scheduled, Step& step);
  kv::BlockPin PinBlocks(const Step& step);
  void FinishItem(const ScheduledItem& item, ItemResult result);
  void TellScored(Sequence& sequence, uint32_t position, std::vector<TokenLogprobs> scored);
  void StoreFullBlocks(Sequence& sequence, const ScheduledItem& item);
  void FinishPrompt(Sequence& sequence, ItemResult result);
  void Emit(const std::vector<TokenEvent>& events);
  void Emit(const TokenEvent& event);
  void Fail(SequenceId id, const absl::Status& status);
  void RecordStep(const InFlight& step, bool ran);
  Sequence* Find(SequenceId id);

  const EngineOptions options_;
  const Environment env_;
  std::map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Replay> replays_;  // to be emitted in the next turn
  std::optional<InFlight> in_flight_;
  SequenceId next_sequence_ = 1;
  StepId next_step_ = 1;
  StepPlanner planner_;
  RoomByAge room_;
  uint32_t waiting_for_room_ = 0;
  Time step_started_{};              // the last one
  bool joined_ = false;              // somebody has since then
  std::optional<Time> rests_since_;  // no step before `rest_`
  TimerHandle rest_;
  TimerHandle turn_;  // at now: cancelled with the engine, unlike a posted task
  bool turn_pending_ = false;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_ENGINE_H_
