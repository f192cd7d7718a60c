// One control session from a source to one sink, and the data connection that goes with it.
#ifndef BATON_KVTRANSFER_SOURCE_SESSION_H_
#define BATON_KVTRANSFER_SOURCE_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "baton/transfer/v1/transfer.pb.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/silence_watch.h"
#include "common/time.h"
#include "kvtransfer/cause.h"
#include "kvtransfer/source.h"
#include "kvtransfer/source_state.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

struct SourceAttempt {
  AttemptId id;
  uint64_t serial = 0;  // tells reservations of one attempt id at several sinks apart
  SourceState state = SourceState::kConnecting;
  SourceSession* session = nullptr;
  transfer::v1::Reserve reserve;
  std::vector<uint32_t> first_needed;
  uint64_t secret = 0;
  bool counted = false;  // in baton_transfers_in_flight
  Time last_ship{};
  Time commit_called{};
  uint64_t backlog_at_commit = 0;
  std::optional<SilenceWatch> commit_watch;  // kCommitting
  TransferEnd end;
};

// Part of TransferSource; same owner thread.
class SourceSession : private SourceStream::Listener, private DataConnection::Listener {
 public:
  SourceSession(TransferSource& source, SinkAddress sink);
  ~SourceSession() override;
  SourceSession(const SourceSession&) = delete;
  SourceSession& operator=(const SourceSession&) = delete;

  void Start();
  const SinkAddress& sink() const { return sink_; }

  // What the host asks; see the table in source_state.h.
  void Reserve(SourceAttempt& attempt);
  void Ship(SourceAttempt& attempt, const BlockRun& run);
  void Commit(SourceAttempt& attempt, CommitMessage message);
  void Release(SourceAttempt& attempt, Cause why);

 private:
  void OnMessage(transfer::v1::SessionResponse message) override;
  void OnClosed(absl::Status status) override;

  void OnConnected() override;
  void OnCommitReply(const AttemptId& attempt, Cause cause) override;
  void OnTransferClosed(const AttemptId& attempt) override;
  void OnEnded(absl::Status status) override;

  void OnHello(const transfer::v1::SinkHello& hello);
  void OnGranted(SourceAttempt* attempt, const transfer::v1::Granted& granted);
  bool AcceptGrant(SourceAttempt& attempt, const transfer::v1::Granted& granted) const;
  void OnWait(SourceAttempt* attempt);
  void OnRefused(SourceAttempt* attempt, Cause cause);
  void OnRevoked(SourceAttempt* attempt, Cause cause);

  void Note(const SourceAttempt& attempt, SourceEvent event) const;
  // A live attempt of this session.
  SourceAttempt* Find(const AttemptId& attempt);
  std::vector<SourceAttempt*> Attempts();
  void SendReserve(SourceAttempt& attempt);
  void SendRelease(const SourceAttempt& attempt, Cause cause);
  void Granted(SourceAttempt& attempt);
  void StartEnding(SourceAttempt& attempt, Outcome outcome, Cause cause);
  void Conclude(SourceAttempt& attempt, Outcome outcome, Cause cause);
  // The data connection hangs when a commit is not answered and nothing is taken for a lease.
  void WatchCommit(SourceAttempt& attempt, uint64_t backlog);
  void ConnectData();
  void DropData();
  void BadPeer(std::string_view what);
  // The session is over: everything ends, and this object is destroyed in a later task.
  void End(Cause cause, absl::Status tell_sink);
  void Heartbeat();

  TransferSource& source_;
  const SinkAddress sink_;
  std::unique_ptr<SourceStream> stream_;
  std::unique_ptr<DataConnection> data_;
  bool open_ = false;  // SinkHello was accepted
  bool data_connected_ = false;
  bool ended_ = false;
  std::vector<std::string> addresses_;
  size_t next_address_ = 0;
  Duration heartbeat_;
  TimerHandle heartbeat_timer_;
  std::optional<SilenceWatch> silence_;  // until the end
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SOURCE_SESSION_H_
