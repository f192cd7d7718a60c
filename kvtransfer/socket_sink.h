// The sink's end of data connections over sockets: a thread that accepts, and one per connection
// that reads frames through the ReceiveTable and writes the replies.
#ifndef BATON_KVTRANSFER_SOCKET_SINK_H_
#define BATON_KVTRANSFER_SOCKET_SINK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/receive_connection.h"
#include "kvtransfer/socket.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

// How frames come from the socket: what differs between tcp and shm. The connection's thread only.
class FrameReader {
 public:
  virtual ~FrameReader() = default;
  // Handles a piece or a few other frames, so that credits leave while more comes. False: the
  // socket has no more at the moment. An error, UNAVAILABLE at the end of the stream, ends the
  // connection.
  virtual absl::StatusOr<bool> ReadSome(int socket, ReceiveConnection& connection) = 0;
};

class SocketSink;

class SocketListener : public DataListener {
 public:
  struct Params {
    UniqueFd socket;  // listening
    std::string address;
    uint16_t port = 0;
    uint32_t max_connections = 0;
    // Checks a new peer; may be null.
    std::function<absl::Status(int socket)> admit;
    std::function<std::unique_ptr<FrameReader>()> make_reader;
  };
  SocketListener(Params params, ReceiveTable& table);
  ~SocketListener() override;

  std::string address() const override { return params_.address; }
  uint16_t port() const override { return params_.port; }

 private:
  void Run();
  void TakeNew();

  const Params params_;
  ReceiveTable& table_;
  Wakeup wakeup_;
  std::atomic<bool> stop_{false};
  std::list<std::unique_ptr<SocketSink>> connections_;  // the thread's

  std::thread thread_;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SOCKET_SINK_H_
