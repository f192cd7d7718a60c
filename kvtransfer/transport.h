// The data connection between a source and a sink: one interface for in_process, shm and tcp.
//
// A connection carries many transfers, interleaved. Of each transfer, in order: Open (with the
// secret from Granted), pieces, Commit, then its reply in the other direction, Close. The frames
// are those of docs/wire_format.md. What arrives goes through the sink's ReceiveTable, which checks
// it, owns the fence and hands commits to the sink's core.
#ifndef BATON_KVTRANSFER_TRANSPORT_H_
#define BATON_KVTRANSFER_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "kv/block.h"
#include "kvtransfer/cause.h"

namespace baton::kvtransfer {

class ReceiveTable;

// Version of control messages and of data frames together; part of layout_fp.
inline constexpr uint32_t kProtocolVersion = 1;

// One frame carries at most this much of blocks.
inline constexpr size_t kMaxPieceBytes = size_t{1} << 20;

// Blocks of one layer under consecutive ordinals of the transfer's block list of the layer's group.
// All arenas of the layer go.
struct BlockRun {
  uint32_t layer = 0;
  uint32_t first_ordinal = 0;
  std::vector<kv::BlockId> blocks;
};

struct CommitMessage {
  Digest chain_hash;          // TokenChainHash of the prompt whose KV was shipped
  std::string decoder_state;  // serialized state.v1.DecoderState
};

// The source's end. Owner thread: the core's executor; the listener is called there, never inside a
// call to this object. No call blocks, copies blocks or reads them: that is done by the
// transport's own thread (in_process: by tasks of the executor).
class DataConnection {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnConnected() = 0;
    // CAUSE_UNSPECIFIED: committed.
    virtual void OnCommitReply(const AttemptId& attempt, Cause cause) = 0;
    // After Close(): nothing of the transfer's blocks is read any more. Once.
    virtual void OnTransferClosed(const AttemptId& attempt) = 0;
    // The connection failed or could not be made: no block of any transfer is read any more and
    // nothing else is called. Once.
    virtual void OnEnded(absl::Status status) = 0;
  };

  // Ends the connection. Returns when no block is read any more.
  virtual ~DataConnection() = default;

  virtual void Open(const AttemptId& attempt, uint64_t secret) = 0;
  // The blocks stay unchanged until OnTransferClosed or OnEnded.
  virtual void Send(const AttemptId& attempt, const BlockRun& run) = 0;
  // After the last Send.
  virtual void Commit(const AttemptId& attempt, CommitMessage message) = 0;
  // Ends the transfer; what is not sent yet is dropped. Also after a commit reply.
  virtual void Close(const AttemptId& attempt) = 0;

  // Bytes of blocks given to Send that the sink has not credited yet; it credits in steps of two
  // megabytes. 0 when the transfer is not open here.
  virtual uint64_t Backlog(const AttemptId& attempt) const = 0;
};

// The sink's end: takes connections as long as it lives. Its destructor ends them all and returns
// when no block is written any more.
class DataListener {
 public:
  virtual ~DataListener() = default;
  // For SinkHello.data_addresses: "SCHEME:..." as the scheme's transport understands it.
  virtual std::string address() const = 0;
  // The port that is bound, whatever address() says; 0 when the transport has none.
  virtual uint16_t port() const { return 0; }
};

struct ConnectRequest {
  std::string address;  // one with this transport's scheme
  Epoch source_epoch;
  Epoch sink_epoch;
};

// Owner thread: the core's executor. Outlives its connections and listeners.
class Transport {
 public:
  virtual ~Transport() = default;

  // "inproc", "shm" or "tcp": what stands before the first ':' of its addresses.
  virtual std::string_view scheme() const = 0;

  // Returns at once; sends before OnConnected are queued. `listener` must outlive the connection.
  virtual std::unique_ptr<DataConnection> Connect(const ConnectRequest& request,
                                                  DataConnection::Listener& listener) = 0;

  // `table` must outlive the listener.
  virtual absl::StatusOr<std::unique_ptr<DataListener>> Listen(ReceiveTable& table) = 0;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_TRANSPORT_H_
