// The sink's view of one data connection: takes decoded frames from the transport's thread, checks
// them against the ReceiveTable and says where a piece may be written.
#ifndef BATON_KVTRANSFER_RECEIVE_CONNECTION_H_
#define BATON_KVTRANSFER_RECEIVE_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/receive_table.h"

namespace baton::kvtransfer {

struct InboundTransfer;

// One piece on its way into the blocks. Write only between Enter() == true and Leave().
class Landing {
 public:
  // Where the payload goes, in order; empty when it is to be discarded.
  const std::vector<std::span<std::byte>>& targets() const { return targets_; }
  uint32_t length() const { return header_.length; }
  const PieceHeader& header() const { return header_; }

 private:
  friend class ReceiveConnection;
  PieceHeader header_;
  std::vector<std::span<std::byte>> targets_;
  std::shared_ptr<InboundTransfer> transfer_;
};

// Used by one thread, but for the outbox and `ended`, which the core's thread fills. Of connections
// of one source the one that was made last counts.
class ReceiveConnection {
 public:
  enum class Verdict { kIntact, kDamaged, kGivenUp };

  // `wake` is called from any thread, under a lock: the outbox is no longer empty, or ended().
  ReceiveConnection(ReceiveTable& table, std::function<void()> wake);
  // The connection has ended; `cause` of End(), or CAUSE_PEER_LOST, for what it left uncommitted.
  ~ReceiveConnection();
  ReceiveConnection(const ReceiveConnection&) = delete;
  ReceiveConnection& operator=(const ReceiveConnection&) = delete;

  // Any frame but pieces and shm's. An error ends the connection.
  absl::Status OnFrame(FrameType type, std::string_view body);

  // Checks the header against the granted blocks. An error ends the connection, before anything is
  // written.
  absl::StatusOr<Landing> BeginPiece(const PieceHeader& header);
  // False: discard what comes now (the transfer was dropped).
  bool Enter(Landing& landing);
  void Leave(Landing& landing);
  void EndPiece(Landing& landing, Verdict verdict);

  // The connection ends for this error; call before destroying it.
  void End(const absl::Status& why);

  bool greeted() const { return greeted_; }
  const Epoch& source() const { return hello_.source_epoch; }
  // Frames to send to the source.
  std::string TakeOutbox();
  // The source was removed, or its outbox overran: end the connection.
  bool ended();

 private:
  friend struct ReceiveShared;
  friend class ReceiveTable;

  absl::Status OnHello(const HelloFrame& hello);
  absl::Status OnOpen(const OpenFrame& open);
  absl::Status OnCommit(CommitFrame commit);
  absl::Status OnClose(const AttemptId& attempt);
  std::shared_ptr<InboundTransfer> Bound(const AttemptId& attempt) const;
  void Push(std::string frame);  // under the table's mutex

  const std::shared_ptr<ReceiveShared> shared_;
  const std::function<void()> wake_;
  uint64_t number_ = 0;  // in the order in which they were made
  bool greeted_ = false;
  HelloFrame hello_;
  Cause end_cause_;
  // Opened and not closed here. The connection's thread only.
  std::map<AttemptId, std::shared_ptr<InboundTransfer>> bound_;
  // Under the table's mutex.
  std::string outbox_;
  bool ended_ = false;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_RECEIVE_CONNECTION_H_
