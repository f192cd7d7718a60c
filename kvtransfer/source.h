// The source side of KV transfers: the protocol core that a worker uses to hand finished KV to
// sinks (DESIGN sections 4 and 5).
#ifndef BATON_KVTRANSFER_SOURCE_H_
#define BATON_KVTRANSFER_SOURCE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "baton/transfer/v1/transfer.pb.h"
#include "common/cores.h"
#include "common/decoder_state.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/stream.h"
#include "common/time.h"
#include "kv/layout.h"
#include "kvtransfer/cause.h"
#include "kvtransfer/source_state.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

class SourceSession;
struct SourceAttempt;
struct TransferMetrics;

using SourceStream = Stream<transfer::v1::SessionRequest, transfer::v1::SessionResponse>;

// Opens control sessions. A gRPC channel in production, the simulated network in the simulator.
class SinkDialer {
 public:
  virtual ~SinkDialer() = default;
  // Returns at once; a failed connection is OnClosed. `listener` must outlive the stream.
  virtual std::unique_ptr<SourceStream> Dial(const std::string& address,
                                             SourceStream::Listener& listener) = 0;
};

struct SinkAddress {
  std::string address;
  Epoch epoch;
  auto operator<=>(const SinkAddress&) const = default;
};

struct ReserveRequest {
  std::vector<TokenId> prompt;
  std::string cache_namespace;
  uint32_t n = 1;
  uint32_t max_tokens = 0;
  Duration age{0};
  std::optional<Duration> remaining;
};

enum class Outcome {
  kCommitted,   // the sink goes on with the request
  kNotGranted,  // Reserve was refused: another sink may take it
  kRefused,     // Commit was refused
  kRevoked,     // the sink dropped the granted reservation
  kReleased,    // by our own Release; see kPeerLost
  kPeerLost,    // a connection to the sink ended or was never made, or the sink fell silent; after
                // Commit was called the sink may or may not have committed
};

struct TransferEnd {
  Outcome outcome = Outcome::kPeerLost;
  Cause cause{};        // CAUSE_UNSPECIFIED when committed
  uint64_t bytes = 0;   // of blocks that were shipped
  Duration handoff{0};  // last layer shipped until Committed; when committed
};

// Owner thread: the executor's; callbacks come there, never inside a call to this object. Its
// destructor ends all sessions and returns when no block is read any more; no callback follows.
class TransferSource {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    // Per group: ordinal of the first block that must be shipped. Some token after the prompt sees
    // it.
    virtual void OnGranted(const AttemptId& attempt,
                           const std::vector<uint32_t>& first_needed_block) = 0;
    // It stands in the sink's queue.
    virtual void OnWaiting(const AttemptId& attempt) = 0;
    // Exactly once per Reserve, and the last callback of it. From now on the blocks may be reused
    // and the attempt may be reserved at another sink.
    virtual void OnEnded(const AttemptId& attempt, const TransferEnd& end) = 0;
  };

  struct Options {
    Epoch epoch;
    Digest layout_fp;
    Digest numerics_id;
    kv::KvLayout layout;
    Cores cores;  // told to sinks
    Duration heartbeat = std::chrono::seconds(1);
    // A sink that is silent for so long is lost; also the limit for opening its session.
    Duration lease = std::chrono::seconds(10);
    // For tests that count the cells of source_state.h; called before each move.
    std::function<void(SourceState, SourceEvent)> on_event;
  };

  // All must outlive this object. `transports` in no order: the sink's order decides. `metrics` may
  // be null.
  TransferSource(Options options, Executor& executor, SinkDialer& dialer,
                 std::vector<Transport*> transports, Host& host, TransferMetrics* metrics);
  ~TransferSource();
  TransferSource(const TransferSource&) = delete;
  TransferSource& operator=(const TransferSource&) = delete;

  // Asks for room. The attempt must not be live here. Opens the session when there is none.
  void Reserve(const AttemptId& attempt, const SinkAddress& sink, const ReserveRequest& request);

  // After OnGranted: `run` of finished blocks goes to the sink. Each (layer, ordinal) once; blocks
  // below first_needed_block are left out. The blocks stay unchanged until OnEnded. Ignored when
  // the attempt has ended or is ending (OnEnded says so).
  void Ship(const AttemptId& attempt, const BlockRun& run);

  // After the last Ship. Answered by OnEnded.
  void Commit(const AttemptId& attempt, CommitMessage message);

  // Ends it in any state before commit; OnEnded follows (kReleased, or kCommitted when the sink was
  // faster). `why` goes to the sink: CAUSE_UNSPECIFIED when the router is told, or knows, what
  // becomes of the attempt; with any other cause the sink tells it. Ignored when not live.
  void Release(const AttemptId& attempt, Cause why = worker::v1::CAUSE_UNSPECIFIED);

  // Smoothed over real transfers: what was on its way when Commit was called, over the time until
  // the reply. 0: no transfer was large enough (1 MiB) yet.
  double bytes_per_second() const { return bytes_per_second_; }
  // Live attempts; 0 at idle.
  size_t live() const { return attempts_.size(); }
  // The state of a live attempt, for tests and for the host's own checks.
  std::optional<SourceState> state(const AttemptId& attempt) const;

 private:
  friend class SourceSession;

  SourceAttempt* Find(const AttemptId& attempt);
  SourceSession& SessionOf(const SinkAddress& sink);
  // The last thing done with an attempt: forgets it and tells the host.
  void Finish(SourceAttempt& attempt);
  void CountEnd(const SourceAttempt& attempt);
  // Ends it within a later task.
  void FinishLater(SourceAttempt& attempt);
  // Takes the session out; it is destroyed in a later task.
  void Forget(SourceSession& session);
  void OnCommitted(const SourceAttempt& attempt);

  const Options options_;
  Executor& executor_;
  SinkDialer& dialer_;
  const std::vector<Transport*> transports_;
  Host& host_;
  TransferMetrics* const metrics_;
  const std::shared_ptr<bool> alive_;
  double bytes_per_second_ = 0;
  uint64_t next_serial_ = 0;
  std::map<AttemptId, std::unique_ptr<SourceAttempt>> attempts_;
  std::map<SinkAddress, std::unique_ptr<SourceSession>> sessions_;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SOURCE_H_
