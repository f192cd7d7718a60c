// One control session of one source at the sink.
#ifndef BATON_KVTRANSFER_SINK_SESSION_H_
#define BATON_KVTRANSFER_SINK_SESSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "baton/transfer/v1/transfer.pb.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/silence_watch.h"
#include "common/time.h"
#include "kvtransfer/cause.h"
#include "kvtransfer/sink.h"
#include "kvtransfer/sink_state.h"

namespace baton::kvtransfer {

struct SinkAttempt {
  AttemptId id;
  SinkState state = SinkState::kAsked;
  SinkSession* session = nullptr;  // null when quiescing after the session's end
  Digest chain_hash;               // of the prompt
  uint32_t prompt_tokens = 0;
  uint32_t choices = 0;
};

// Part of TransferSink; same owner thread.
class SinkSession : private SinkStream::Listener {
 public:
  SinkSession(TransferSink& sink, uint64_t number);
  ~SinkSession() override;
  SinkSession(const SinkSession&) = delete;
  SinkSession& operator=(const SinkSession&) = delete;

  void Start(const std::function<std::unique_ptr<SinkStream>(SinkStream::Listener&)>& start);

  uint64_t number() const { return number_; }
  bool greeted() const { return greeted_; }
  const Epoch& source() const { return source_; }
  // The source computes on the host's cores.
  bool contends() const { return contends_; }

  void SendGranted(const SinkAttempt& attempt, const std::vector<uint32_t>& first_needed,
                   uint64_t secret);
  void SendWait(const AttemptId& attempt);
  void SendRefused(const AttemptId& attempt, Cause cause);
  void SendRevoked(const AttemptId& attempt, Cause cause);

  // So that a late Release does not make a tombstone of it.
  void RememberCommitted(const AttemptId& attempt);
  bool Committed(const AttemptId& attempt) const { return committed_.count(attempt) != 0; }

  // The session is over: what it holds is dropped, and this object is destroyed in a later task.
  void End(Cause cause, absl::Status tell_source);

 private:
  void OnMessage(transfer::v1::SessionRequest message) override;
  void OnClosed(absl::Status status) override;
  void OnHello(const transfer::v1::SourceHello& hello);
  void Heartbeat();

  TransferSink& sink_;
  const uint64_t number_;
  std::unique_ptr<SinkStream> stream_;
  bool greeted_ = false;
  bool ended_ = false;
  Epoch source_;
  bool contends_ = false;
  std::map<AttemptId, Time> committed_;  // when
  TimerHandle heartbeat_timer_;
  std::optional<SilenceWatch> silence_;  // until the end
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SINK_SESSION_H_
