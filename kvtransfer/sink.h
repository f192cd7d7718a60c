// The sink side of KV transfers: the protocol core that a worker uses to take KV over from sources
// (DESIGN sections 4 and 5).
#ifndef BATON_KVTRANSFER_SINK_H_
#define BATON_KVTRANSFER_SINK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "baton/transfer/v1/transfer.pb.h"
#include "common/cores.h"
#include "common/decoder_state.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/stream.h"
#include "common/time.h"
#include "kvtransfer/cause.h"
#include "kvtransfer/receive_table.h"
#include "kvtransfer/sink_state.h"
#include "kvtransfer/tombstones.h"
#include "kvtransfer/transport.h"

namespace baton {
class Random;
}

namespace baton::kvtransfer {

class SinkSession;
struct SinkAttempt;
struct TransferMetrics;

using SinkStream = Stream<transfer::v1::SessionResponse, transfer::v1::SessionRequest>;

// What a source asks room for, checked (sizes, ranges, fingerprints).
struct Reservation {
  std::vector<TokenId> prompt;
  std::string cache_namespace;
  uint32_t n = 1;
  uint32_t max_tokens = 0;
  Duration age{0};
  std::optional<Duration> remaining;  // may be negative
};

// Owner thread: the executor's; callbacks come there, never inside a call to this object. Its
// destructor ends all sessions; no callback follows. Destroy the data listeners first.
class TransferSink : private ReceiveTable::Listener {
 public:
  class Host {
   public:
    virtual ~Host() = default;

    // A source asks for room. Answer with Grant or Refuse, at once (inside this call) or later;
    // with Wait first when it stands in the queue. OnDropped in between takes the question back.
    virtual void OnReserve(const AttemptId& attempt, Reservation reservation) = 0;

    // An attempt that was asked for, waiting or granted is over. Not called for the host's own
    // Drop and Refuse. When it was granted its blocks are still fenced: OnQuiesced follows.
    virtual void OnDropped(const AttemptId& attempt, Cause cause) = 0;

    // The blocks of a granted attempt may be freed. Follows every Drop and OnDropped of one.
    virtual void OnQuiesced(const AttemptId& attempt) = 0;

    // Every piece is in the blocks and the chain hash is right. CAUSE_UNSPECIFIED: the host takes
    // blocks and state over (the sink answers Committed and forgets the attempt; when its sequence
    // is over the host makes it a tombstone). Another cause: refused, and OnQuiesced follows.
    virtual Cause OnCommit(const AttemptId& attempt, std::string decoder_state) = 0;

    // The first piece has landed in the attempt's blocks.
    virtual void OnFirstPiece(const AttemptId&) {}
  };

  struct Options {
    Epoch epoch;
    Digest layout_fp;
    Digest numerics_id;
    uint32_t vocab_size = 0;      // prompt tokens are below
    uint32_t context_length = 0;  // prompts are shorter
    uint32_t num_groups = 1;
    uint32_t block_size = 16;
    std::vector<std::string> data_addresses;  // in order of preference
    Cores cores;                              // that the sink's host computes on
    Duration heartbeat = std::chrono::seconds(1);
    // A source that is silent for so long is lost.
    Duration lease = std::chrono::seconds(10);
    // For tests that count the cells of sink_state.h; called before each move. No state: gone.
    std::function<void(std::optional<SinkState>, SinkEvent)> on_event;
  };

  // All must outlive this object; `table` is this sink's alone. `metrics` may be null.
  TransferSink(Options options, Executor& executor, ReceiveTable& table, Tombstones& tombstones,
               Random& random, Host& host, TransferMetrics* metrics);
  ~TransferSink() override;
  TransferSink(const TransferSink&) = delete;
  TransferSink& operator=(const TransferSink&) = delete;

  // A source opened a session. `start` is called at once with the listener, which stays valid until
  // the stream that it returns is destroyed.
  void Accept(
      const std::function<std::unique_ptr<SinkStream>(SinkStream::Listener& listener)>& start);

  // Answers to OnReserve; the attempt is asked for or waiting (it was not dropped).
  //
  // Blocks per group in the order of the transfer's block list, for the prompt and as much room to
  // grow as the host likes. first_needed: ordinals below are in the blocks already (prefix hit) or
  // seen by no token after the prompt (kv::SlidingWindows::FirstSeen, which it is at least).
  struct GroupGrant {
    uint32_t first_needed = 0;
    std::vector<kv::BlockId> blocks;
  };
  void Grant(const AttemptId& attempt, std::vector<GroupGrant> groups);
  void Wait(const AttemptId& attempt);
  void Refuse(const AttemptId& attempt, Cause cause);

  // Ends an uncommitted attempt in any state, also one never seen: it becomes a tombstone, the
  // source is told, and OnQuiesced follows when it was granted. Ignored for what is over.
  void Drop(const AttemptId& attempt, Cause cause);

  std::optional<SinkState> state(const AttemptId& attempt) const;
  // Attempts not yet committed, refused or quiesced; 0 at idle.
  size_t live() const { return attempts_.size(); }
  size_t sessions() const { return sessions_.size(); }
  // Choices of granted attempts whose source computes on the host's cores.
  uint32_t ChoicesComputedHere() const;

 private:
  friend class SinkSession;
  void OnFirstPiece(const AttemptId& attempt) override;
  void OnCommitArrived(const AttemptId& attempt, Cause problem, CommitMessage message) override;
  void OnTransferFailed(const AttemptId& attempt, Cause cause) override;
  void OnQuiesced(const AttemptId& attempt) override;

  SinkAttempt* Find(const AttemptId& attempt);
  void Note(const SinkAttempt* attempt, SinkEvent event) const;
  void End(SinkAttempt& attempt, Cause cause, bool tell_host, bool tell_source);
  void OnReserve(SinkSession& session, const transfer::v1::Reserve& reserve);
  void OnRelease(SinkSession& session, const AttemptId& attempt, Cause cause);
  void Forget(SinkSession& session, Cause cause);
  void ReplaceOlder(SinkSession& session);

  const Options options_;
  Executor& executor_;
  ReceiveTable& table_;
  Tombstones& tombstones_;
  Random& random_;
  Host& host_;
  TransferMetrics* const metrics_;
  uint64_t next_session_ = 0;
  std::map<AttemptId, std::unique_ptr<SinkAttempt>> attempts_;
  std::map<uint64_t, std::unique_ptr<SinkSession>> sessions_;  // by order of arrival
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SINK_H_
