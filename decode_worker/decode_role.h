// The sink's role: grants room by age, takes KV and requests over from sources, generates, and
// returns tokens to the router (DESIGN sections 4 and 5).
#ifndef BATON_DECODE_WORKER_DECODE_ROLE_H_
#define BATON_DECODE_WORKER_DECODE_ROLE_H_

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "common/metrics.h"
#include "common/time.h"
#include "decode_worker/decode_state.h"
#include "engine/room_holder.h"
#include "kvtransfer/receive_table.h"
#include "kvtransfer/sink.h"
#include "kvtransfer/transfer_metrics.h"
#include "worker/role.h"

namespace baton::worker {

// From the grant until the commit an attempt is held by its router's session and its source's
// session, afterwards by the router's alone. Until the commit its blocks may be taken back for an
// older sequence (Revoke). Owner thread: the executor's.
class DecodeRole : public Role, private kvtransfer::TransferSink::Host {
 public:
  // `context` and `table` must outlive this object, the data listeners must not.
  DecodeRole(WorkerContext& context, kvtransfer::ReceiveTable& table,
             std::vector<std::string> data_addresses);
  ~DecodeRole() override;

  // Sources open their sessions here.
  kvtransfer::TransferSink& sink() { return sink_; }

  bool Has(const AttemptId& attempt) const override { return attempts_.count(attempt) != 0; }
  // Only requests without sinks run here: UNIMPLEMENTED.
  absl::Status Submit(Submission submission) override;
  void Attach(const AttemptId& id) override;
  void Cancel(const AttemptId& id) override;
  void DropRouter(const Epoch& router, v1::Cause cause) override;
  QueueLoad Queued() const override;
  size_t live() const override { return attempts_.size(); }
  uint32_t Coming() const override { return sink_.ChoicesComputedHere(); }

  engine::GaveUp GiveUpYoungest(Time than) override;

  // The youngest attempt with blocks and no commit, and when its request was admitted.
  struct Grant {
    Time admitted_at;
    AttemptId attempt;
  };
  std::optional<Grant> YoungestGrant() const;
  // Takes the blocks of such an attempt back: the source and the router are told PREEMPTED, and the
  // blocks are free when nothing writes to them any more (the pool's freed callback). False, and
  // nothing happens, when it is committed, over or not granted yet.
  bool Revoke(const AttemptId& attempt);

  // For tests.
  std::optional<DecodeState> state(const AttemptId& attempt) const;

 private:
  struct Attempt;
  // Of a live attempt; ignored for others.
  void Note(const AttemptId& id, DecodeEvent event) const;
  void Note(DecodeState before, DecodeEvent event) const;

  // TransferSink::Host.
  void OnReserve(const AttemptId& id, kvtransfer::Reservation reservation) override;
  void OnDropped(const AttemptId& id, v1::Cause cause) override;
  void OnQuiesced(const AttemptId& id) override;
  v1::Cause OnCommit(const AttemptId& id, std::string decoder_state) override;

  v1::Cause WhyNot(const AttemptId& id, const kvtransfer::Reservation& reservation) const;
  void Enqueue(const AttemptId& id, kvtransfer::Reservation reservation);
  void OnRoom(const AttemptId& id, kv::CachedLease room);
  absl::Status Generate(Attempt& attempt, const std::string& decoder_state);
  void OnUnattached(const AttemptId& id);
  void OnDeadline(const AttemptId& id);

  bool AnyQuiescing() const;
  // Over; only the receive thread may still write to its blocks.
  static void Quiesce(Attempt& attempt);

  // The one way out. Tells the source and gives everything back: at once, or when nothing is read
  // into the blocks any more.
  void Finish(Attempt& attempt, v1::Cause cause);
  void Forget(const AttemptId& id);

  WorkerContext& context_;
  kvtransfer::TransferMetrics metrics_;
  Counter revocations_;
  std::map<AttemptId, std::unique_ptr<Attempt>> attempts_;
  kvtransfer::TransferSink sink_;  // dies first: nothing calls back any more
};

}  // namespace baton::worker

#endif  // BATON_DECODE_WORKER_DECODE_ROLE_H_
