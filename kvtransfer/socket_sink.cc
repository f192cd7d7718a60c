#include "kvtransfer/socket_sink.h"

#include <sys/socket.h>

#include <cerrno>

#include "common/status_macros.h"

namespace baton::kvtransfer {
namespace {

// A connection that says nothing is closed.
constexpr Duration kHelloTimeout = std::chrono::seconds(5);
constexpr Duration kForever{-1};

}  // namespace

class SocketSink {
 public:
  SocketSink(UniqueFd socket, ReceiveTable& table, std::unique_ptr<FrameReader> reader,
             Wakeup& listener)
      : socket_(std::move(socket)),
        reader_(std::move(reader)),
        listener_(listener),
        connection_(std::make_unique<ReceiveConnection>(table, [this] { wakeup_.Signal(); })),
        thread_([this] { Run(); }) {}

  ~SocketSink() {
    stop_ = true;
    wakeup_.Signal();
    thread_.join();
  }

  bool done() const { return done_; }

 private:
  void Run() {
    connection_->End(Serve(*connection_));
    connection_.reset();
    // The source sees the end when nothing is written into the blocks any more.
    shutdown(socket_.get(), SHUT_RDWR);
    done_ = true;
    listener_.Signal();
  }

  absl::Status Serve(ReceiveConnection& connection) {
    bool more = false;
    while (!stop_) {
      const Duration timeout = connection.greeted() ? kForever : kHelloTimeout;
      const Ready ready =
          more ? Ready{true, false} : WaitReady(socket_.get(), !outbox_.empty(), wakeup_, timeout);
      if (!ready.socket && !ready.woken && !connection.greeted()) {
        return absl::InvalidArgumentError("no hello");
      }
      if (ready.socket) {
        BATON_ASSIGN_OR_RETURN(more, reader_->ReadSome(socket_.get(), connection));
      }
      if (connection.ended()) return absl::UnavailableError("the source is gone");
      outbox_ += connection.TakeOutbox();
      BATON_RETURN_IF_ERROR(WriteOutbox());
    }
    return absl::CancelledError();
  }

  absl::Status WriteOutbox() {
    while (!outbox_.empty()) {
      const ssize_t n = send(socket_.get(), outbox_.data(), outbox_.size(), MSG_NOSIGNAL);
      if (n < 0) {
        if (errno == EINTR) continue;
        return errno == EAGAIN ? absl::OkStatus() : SocketError("send");
      }
      outbox_.erase(0, static_cast<size_t>(n));
    }
    return absl::OkStatus();
  }

  const UniqueFd socket_;
  const std::unique_ptr<FrameReader> reader_;
  Wakeup& listener_;
  Wakeup wakeup_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
  std::string outbox_;
  // Made by the thread that accepts, in the order of the connections; the own thread's afterwards.
  std::unique_ptr<ReceiveConnection> connection_;

  std::thread thread_;
};

SocketListener::SocketListener(Params params, ReceiveTable& table)
    : params_(std::move(params)), table_(table), thread_([this] { Run(); }) {}

SocketListener::~SocketListener() {
  stop_ = true;
  wakeup_.Signal();
  thread_.join();
}

void SocketListener::Run() {
  while (!stop_) {
    const Ready ready = WaitReady(params_.socket.get(), /*write=*/false, wakeup_, kForever);
    connections_.remove_if([](const auto& connection) { return connection->done(); });
    if (ready.socket && !stop_) TakeNew();
  }
  connections_.clear();
}

void SocketListener::TakeNew() {
  UniqueFd socket = AcceptOne(params_.socket.get());
  if (!socket.valid() || connections_.size() >= params_.max_connections) return;
  if (params_.admit != nullptr && !params_.admit(socket.get()).ok()) return;
  connections_.push_back(
      std::make_unique<SocketSink>(std::move(socket), table_, params_.make_reader(), wakeup_));
}

}  // namespace baton::kvtransfer
