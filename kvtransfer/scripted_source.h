// A source that tells and ships a sink what a test wants, in the moment the test says so.
#ifndef BATON_KVTRANSFER_SCRIPTED_SOURCE_H_
#define BATON_KVTRANSFER_SCRIPTED_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/transfer/v1/transfer.pb.h"
#include "common/ids.h"
#include "kv/layout.h"
#include "kvtransfer/cause.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/receive_connection.h"
#include "kvtransfer/receive_table.h"
#include "kvtransfer/sink.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

// One session and at most one data connection. Its messages arrive inside the calls. Not
// thread-safe; used on the sink's thread.
class ScriptedSource {
 public:
  struct Options {
    Epoch source;
    Epoch sink;
    Digest layout_fp{};
    Digest numerics_id{};
  };
  // Says hello. `table` is the sink's; both must outlive this object.
  ScriptedSource(TransferSink& sink, ReceiveTable& table, const Options& options);
  ~ScriptedSource();
  ScriptedSource(const ScriptedSource&) = delete;
  ScriptedSource& operator=(const ScriptedSource&) = delete;

  // On the session.
  void Reserve(const transfer::v1::Reserve& reserve);  // with our fingerprints
  void Release(const AttemptId& attempt, Cause cause = worker::v1::CAUSE_UNSPECIFIED);
  void EndSession();

  // On the data connection, for an attempt that was granted; opens what is not open. A status is
  // what the sink's end says.
  void Open(const AttemptId& attempt);
  // Every piece of the first `blocks` blocks, intact.
  void Ship(const AttemptId& attempt, uint32_t blocks);
  void ShipDamaged(const AttemptId& attempt);
  // Begins a piece and stays inside the blocks until Leave.
  void Enter(const AttemptId& attempt);
  void Leave();
  absl::Status Commit(const AttemptId& attempt, CommitMessage message);
  void CloseTransfer(const AttemptId& attempt);
  void EndData();

  bool alive() const { return listener_ != nullptr; }
  // The replies to Commit so far; 0: committed.
  std::vector<uint32_t> TakeReplies();

  // What the sink said on the session.
  std::vector<transfer::v1::SessionResponse> heard;

 private:
  struct Stream;
  absl::Status Feed(FrameType type, const std::string& frame);
  uint64_t SecretOf(const AttemptId& attempt) const;
  PieceHeader Header(const AttemptId& attempt, uint32_t layer, uint32_t arena,
                     uint32_t blocks) const;

  ReceiveTable& table_;
  const Options options_;
  SinkStream::Listener* listener_ = nullptr;  // null: the session has ended
  std::unique_ptr<ReceiveConnection> connection_;
  std::vector<AttemptId> opened_;
  std::optional<Landing> landing_;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SCRIPTED_SOURCE_H_
