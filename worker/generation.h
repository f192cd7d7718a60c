// One sequence that generates here, and the flow of its events to the router.
#ifndef BATON_WORKER_GENERATION_H_
#define BATON_WORKER_GENERATION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/ids.h"
#include "worker/engine_mux.h"
#include "worker/router_sessions.h"

namespace baton::worker {

enum class GenerationEvent : uint8_t {
  kToken,      // of a choice, maybe its last
  kLastToken,  // no choice goes on
  kSequenceFailed,
};

// Until Attach its events are kept, bounded by prompt and max_tokens; then they flow. Removes
// the sequence when it dies. Owner thread: the executor's.
class Generation : public SequenceOwner {
 public:
  // `over` is called once, when the last event has gone to the router; it may destroy this object.
  // All must outlive it.
  Generation(const AttemptId& attempt, EngineMux& engine, RouterSessions& sessions, bool attached,
             std::function<void()> over);
  ~Generation() override;
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // For tests that count cells; called before each event of the sequence.
  void set_on_event(std::function<void(GenerationEvent)> hook) { on_event_ = std::move(hook); }

  absl::Status Start(engine::NewSequence sequence);
  void Attach();
  bool attached() const { return attached_; }
  bool running() const { return sequence_.has_value(); }

 private:
  void OnPromptLogprobs(uint32_t position, std::vector<TokenLogprobs> logprobs) override;
  void OnToken(const engine::TokenEvent& event) override;
  void OnSequenceFailed(const absl::Status& status) override;
  void Note(GenerationEvent event) const;
  void Emit(v1::WorkerEvent event);
  void End();

  const AttemptId attempt_;
  EngineMux& engine_;
  RouterSessions& sessions_;
  const std::function<void()> over_;
  std::function<void(GenerationEvent)> on_event_;
  bool attached_;
  std::vector<v1::WorkerEvent> kept_;
  std::optional<engine::SequenceId> sequence_;  // while it runs
};

}  // namespace baton::worker

#endif  // BATON_WORKER_GENERATION_H_
