// The source's end of one data connection without its I/O: what is to be sent, in which order, who
// has credit, and when a block is no longer read. Shared by the core and the transport's thread.
#ifndef BATON_KVTRANSFER_SEND_QUEUE_H_
#define BATON_KVTRANSFER_SEND_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/crc32c.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "kv/arena.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/generation_table.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

struct OutTransfer;

// A transfer has at most this much on its way that the sink has not taken yet.
inline constexpr uint64_t kCreditWindow = uint64_t{16} << 20;

// The next thing to write: a whole control frame, or the head of a piece frame and its payload.
struct OutFrame {
  std::string bytes;
  std::vector<std::span<const std::byte>> payload;  // read only between Enter and Leave
  // Of a piece.
  PieceHeader header;
  std::vector<kv::BlockId> blocks;
  uint32_t generation_slot = 0;
  uint64_t generation = 0;
  std::shared_ptr<OutTransfer> transfer;

  bool is_piece() const { return transfer != nullptr; }
};

class SendQueue {
 public:
  struct Params {
    ConnectRequest request;
    const kv::KvArena* arena = nullptr;
    Executor* executor = nullptr;
    DataConnection::Listener* listener = nullptr;
    // Called from the core's thread: there may be something for Next.
    std::function<void()> wake;
    GenerationTable* generations = nullptr;  // shm only
  };
  explicit SendQueue(Params params);
  ~SendQueue();
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  // The core's thread.
  void Open(const AttemptId& attempt, uint64_t secret);
  void Send(const AttemptId& attempt, const BlockRun& run);
  void Commit(const AttemptId& attempt, CommitMessage message);
  void Close(const AttemptId& attempt);
  uint64_t Backlog(const AttemptId& attempt) const;

  // The transport's thread (in_process: the executor's).
  //
  // The hello; send it before anything else.
  std::string Hello() const;
  void Connected();
  // Nothing when idle or out of credit. Round robin over the transfers.
  std::optional<OutFrame> Next();
  // False: the transfer was closed, its blocks must not be read.
  bool Enter(const OutFrame& frame);
  void Leave(const OutFrame& frame);
  // The CRC of a piece frame, head and payload; between Enter and Leave. Reads the payload unless
  // every piece of it is sealed.
  uint32_t FrameCrc(const OutFrame& frame);
  // What the sink sent. An error ends the connection.
  absl::Status OnFrame(FrameType type, std::string_view body);
  // The connection is over, and no block is being read. Once, the last call of this thread.
  void End(absl::Status why);

 private:
  std::shared_ptr<OutTransfer> FindLive(const AttemptId& attempt) const BATON_REQUIRES(mutex_);
  void Post(std::function<void(DataConnection::Listener&)> event);
  void ReportClosed(OutTransfer& transfer) BATON_REQUIRES(mutex_);
  std::optional<OutFrame> NextOf(OutTransfer& transfer) BATON_REQUIRES(mutex_);
  OutFrame NextPiece(OutTransfer& transfer, uint32_t length) BATON_REQUIRES(mutex_);
  std::optional<uint32_t> SealedCrc(const OutFrame& frame, uint32_t head_crc);

  const Params params_;
  const std::shared_ptr<bool> alive_;        // executor's thread only
  std::map<uint64_t, Crc32cConcat> concat_;  // by bytes of a piece; the transport's thread only

  mutable Mutex mutex_;
  bool ended_ BATON_GUARDED_BY(mutex_) = false;
  uint64_t next_serial_ BATON_GUARDED_BY(mutex_) = 0;
  uint64_t last_served_ BATON_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::shared_ptr<OutTransfer>> transfers_ BATON_GUARDED_BY(mutex_);
  std::map<AttemptId, std::shared_ptr<OutTransfer>> live_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SEND_QUEUE_H_
