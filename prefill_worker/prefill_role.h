// The source's role: runs prompts, samples first tokens, hands KV and request over to a sink
// (DESIGN section 4, steps 3 and 4).
#ifndef BATON_PREFILL_WORKER_PREFILL_ROLE_H_
#define BATON_PREFILL_WORKER_PREFILL_ROLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/room_queue.h"
#include "kvtransfer/source.h"
#include "kvtransfer/transfer_metrics.h"
#include "kvtransfer/transport.h"
#include "prefill_worker/prefill_state.h"
#include "worker/role.h"

namespace baton::worker {

// An attempt takes its own blocks first, then asks one sink after the other for room, computes only
// when one granted, and keeps its blocks until the sink has taken them or the transfer is over.
// Owner thread: the executor's.
class PrefillRole : public Role, private kvtransfer::TransferSource::Host {
 public:
  // All must outlive this object.
  PrefillRole(WorkerContext& context, kvtransfer::SinkDialer& dialer,
              std::vector<kvtransfer::Transport*> transports);
  ~PrefillRole() override;

  bool Has(const AttemptId& attempt) const override { return attempts_.count(attempt) != 0; }
  absl::Status Submit(Submission submission) override;
  void Attach(const AttemptId&) override {}
  void Cancel(const AttemptId& attempt) override;
  void DropRouter(const Epoch& router, v1::Cause cause) override;
  QueueLoad Queued() const override;
  double transfer_bytes_per_second() const override { return source_.bytes_per_second(); }
  void OnStepEnd() override { context_.room.Poke(); }
  size_t live() const override { return attempts_.size(); }

  // For tests.
  std::optional<PrefillState> state(const AttemptId& attempt) const;

 private:
  struct Attempt;
  void Note(const Attempt& attempt, PrefillEvent event) const;

  // TransferSource::Host.
  void OnGranted(const AttemptId& id, const std::vector<uint32_t>& first_needed_block) override;
  void OnWaiting(const AttemptId& id) override;
  void OnEnded(const AttemptId& id, const kvtransfer::TransferEnd& end) override;

  // Room.
  engine::RoomQueue::Turn TurnOf(const AttemptId& id) const;
  uint64_t AheadOf(const Attempt& candidate) const;
  uint64_t Quarter() const;
  uint64_t HeldByWaiting() const;
  void OnRoom(const AttemptId& id, kv::CachedLease room);

  // Sinks.
  void AskNextSink(Attempt& attempt);
  static void NoteNoGrant(Attempt& attempt, v1::Cause cause);
  void OnPatienceOver(const AttemptId& id);
  void OnTransferOver(Attempt& attempt, const kvtransfer::TransferEnd& end);

  // Engine.
  void StartSequence(Attempt& attempt);
  // What the cache had goes to the sink at once.
  void ShipCached(Attempt& attempt);
  void Ship(Attempt& attempt, uint32_t layer, uint32_t done);
  void OnLayerReady(Attempt& attempt, uint32_t layer, uint32_t tokens);
  void OnPromptLogprobs(Attempt& attempt, uint32_t position, std::vector<TokenLogprobs> logprobs);
  void OnFirstToken(Attempt& attempt, const engine::TokenEvent& event);
  void OnSequenceFailed(Attempt& attempt, const absl::Status& status);
  void Commit(Attempt& attempt);

  // The one way out. Tells the router by `event` when there is one, stops computing, and gives the
  // blocks back: at once, or when the source reads them no more. With a cause the sink tells the
  // router in our place.
  void Finish(Attempt& attempt, std::optional<v1::WorkerEvent> event,
              v1::Cause to_sink = v1::CAUSE_UNSPECIFIED);
  void Forget(const AttemptId& id);

  WorkerContext& context_;
  kvtransfer::TransferMetrics metrics_;
  std::map<AttemptId, std::unique_ptr<Attempt>> attempts_;
  std::vector<const Attempt*> with_blocks_;  // few, however many are queued
  kvtransfer::TransferSource source_;        // dies first: nothing calls back any more
};

}  // namespace baton::worker

#endif  // BATON_PREFILL_WORKER_PREFILL_ROLE_H_
