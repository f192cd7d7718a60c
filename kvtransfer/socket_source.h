// The source's end of a data connection over a socket: one thread that connects, writes what the
// SendQueue gives and reads the replies.
#ifndef BATON_KVTRANSFER_SOCKET_SOURCE_H_
#define BATON_KVTRANSFER_SOCKET_SOURCE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/frame_buffer.h"
#include "kvtransfer/send_queue.h"
#include "kvtransfer/socket.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

// How frames get onto the socket: what differs between tcp and shm. The connection's thread only.
class FrameWriter {
 public:
  virtual ~FrameWriter() = default;
  // Queues what comes first; WriteSome sends it.
  virtual absl::Status Start(SendQueue& queue) = 0;
  // Writes until there is nothing to write (false) or the socket takes no more (true).
  virtual absl::StatusOr<bool> WriteSome(int socket, SendQueue& queue) = 0;
};

class SocketSource : public DataConnection {
 public:
  using Dial = std::function<absl::StatusOr<UniqueFd>()>;  // a socket that connects or is connected

  SocketSource(SendQueue::Params params, Dial dial, std::unique_ptr<FrameWriter> writer);
  ~SocketSource() override;

  void Open(const AttemptId& attempt, uint64_t secret) override { queue_.Open(attempt, secret); }
  void Send(const AttemptId& attempt, const BlockRun& run) override { queue_.Send(attempt, run); }
  void Commit(const AttemptId& attempt, CommitMessage message) override {
    queue_.Commit(attempt, std::move(message));
  }
  void Close(const AttemptId& attempt) override { queue_.Close(attempt); }
  uint64_t Backlog(const AttemptId& attempt) const override { return queue_.Backlog(attempt); }

 private:
  absl::Status Run();
  absl::Status Connect();
  absl::Status ReadReplies();

  Wakeup wakeup_;
  SendQueue queue_;
  const Dial dial_;
  const std::unique_ptr<FrameWriter> writer_;
  std::atomic<bool> stop_{false};
  // The thread's.
  UniqueFd socket_;
  FrameBuffer buffer_;

  std::thread thread_;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SOCKET_SOURCE_H_
