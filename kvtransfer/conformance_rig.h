// What the conformance tests of the transports share: both ends of a connection in one process, and
// a raw peer that sends whatever bytes it likes.
#ifndef BATON_KVTRANSFER_CONFORMANCE_RIG_H_
#define BATON_KVTRANSFER_CONFORMANCE_RIG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/event_loop.h"
#include "common/mutex.h"
#include "gtest/gtest.h"
#include "kv/arena.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/in_process_transport.h"
#include "kvtransfer/receive_table.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

inline constexpr Epoch kSourceEpoch{1, 1};
inline constexpr Epoch kSinkEpoch{2, 2};

// Counts events by text; tests wait for them.
class EventLog {
 public:
  void Add(const std::string& event);
  // False after 60 s.
  [[nodiscard]] bool Await(const std::string& event, int times = 1);
  int Count(const std::string& event);
  std::string ToString();

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, int> counts_ BATON_GUARDED_BY(mutex_);
};

// Writes "NAME REQUEST CAUSE" for each event, for example "failed 1 checksum_mismatch".
class LoggingSink : public ReceiveTable::Listener {
 public:
  explicit LoggingSink(EventLog& log) : log_(log) {}
  void OnFirstPiece(const AttemptId& attempt) override;
  void OnCommitArrived(const AttemptId& attempt, Cause problem, CommitMessage message) override;
  void OnTransferFailed(const AttemptId& attempt, Cause cause) override;
  void OnQuiesced(const AttemptId& attempt) override;

 private:
  EventLog& log_;
};

class LoggingSource : public DataConnection::Listener {
 public:
  explicit LoggingSource(EventLog& log) : log_(log) {}
  void OnConnected() override { log_.Add("connected"); }
  void OnCommitReply(const AttemptId& attempt, Cause cause) override;
  void OnTransferClosed(const AttemptId& attempt) override;
  void OnEnded(absl::Status) override { log_.Add("ended"); }

 private:
  EventLog& log_;
};

// A source without manners. Its pieces take their payload from the rig's source arena.
class RawPeer {
 public:
  virtual ~RawPeer() = default;
  virtual void Send(std::string bytes) = 0;
  // Whether the other side ended the connection, within 60 s.
  [[nodiscard]] virtual bool AwaitEnd() = 0;
  // A piece of these blocks as this transport encodes it. Damaged: its CRC is wrong.
  virtual std::string Piece(const PieceHeader& header, const std::vector<kv::BlockId>& blocks,
                            bool damaged) = 0;
};

struct ConformanceRig {
  ConformanceRig(const std::string& scheme, const kv::KvLayout& layout, uint32_t blocks);
  ~ConformanceRig();

  // Runs it on the loop and waits.
  void OnLoop(std::function<void()> task);
  std::unique_ptr<DataConnection> Connect(const Epoch& sink_epoch = kSinkEpoch);
  // Greets, unless told not to.
  std::unique_ptr<RawPeer> ConnectRaw(bool greet = true);
  // Expects `prompt_blocks` of `blocks` per group, from `first_needed`.
  void Expect(uint64_t request, uint32_t first_needed, uint32_t prompt_blocks,
              const std::vector<kv::BlockId>& blocks);
  uint64_t Secret(uint64_t request) const { return 1000 + request; }
  std::string Open(uint64_t request) const;
  // A correct header for one block of (layer, arena).
  PieceHeader Header(uint64_t request, uint32_t layer, uint32_t arena, uint32_t ordinal) const;
  // Whether every block of the sink is still zero.
  bool SinkUntouched() const;

  std::string scheme;
  EventLoop loop;
  InProcessNetwork network;
  std::unique_ptr<kv::KvArena> source_arena;
  std::unique_ptr<kv::KvArena> sink_arena;
  EventLog log;
  LoggingSink sink{log};
  LoggingSource source{log};
  std::unique_ptr<ReceiveTable> table;
  std::unique_ptr<Transport> source_transport;
  std::unique_ptr<Transport> sink_transport;
  std::unique_ptr<DataListener> listener;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_CONFORMANCE_RIG_H_
