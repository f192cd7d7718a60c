#include "kvtransfer/socket_source.h"

#include <sys/socket.h>

#include <cerrno>

#include "common/status_macros.h"

namespace baton::kvtransfer {
namespace {

constexpr Duration kConnectTimeout = std::chrono::seconds(5);
constexpr Duration kForever{-1};

SendQueue::Params WithWake(SendQueue::Params params, Wakeup& wakeup) {
  params.wake = [&wakeup] { wakeup.Signal(); };
  return params;
}

}  // namespace

SocketSource::SocketSource(SendQueue::Params params, Dial dial, std::unique_ptr<FrameWriter> writer)
    : queue_(WithWake(std::move(params), wakeup_)),
      dial_(std::move(dial)),
      writer_(std::move(writer)),
      thread_([this] { queue_.End(Run()); }) {}

SocketSource::~SocketSource() {
  stop_ = true;
  wakeup_.Signal();
  thread_.join();
}

absl::Status SocketSource::Connect() {
  BATON_ASSIGN_OR_RETURN(socket_, dial_());
  // A connected one is writable at once.
  while (true) {
    const Ready ready = WaitReady(socket_.get(), /*write=*/true, wakeup_, kConnectTimeout);
    if (stop_) return absl::CancelledError();
    if (ready.socket) return ConnectResult(socket_.get());
    if (!ready.woken) return absl::UnavailableError("connect: timeout");
  }
}

absl::Status SocketSource::Run() {
  BATON_RETURN_IF_ERROR(Connect());
  BATON_RETURN_IF_ERROR(writer_->Start(queue_));
  queue_.Connected();
  while (!stop_) {
    BATON_ASSIGN_OR_RETURN(const bool blocked, writer_->WriteSome(socket_.get(), queue_));
    const Ready ready = WaitReady(socket_.get(), blocked, wakeup_, kForever);
    if (ready.socket) BATON_RETURN_IF_ERROR(ReadReplies());
  }
  return absl::CancelledError();
}

absl::Status SocketSource::ReadReplies() {
  char bytes[4096];
  while (true) {
    const ssize_t n = recv(socket_.get(), bytes, sizeof bytes, 0);
    if (n == 0) return absl::UnavailableError("the sink ended the data connection");
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN ? absl::OkStatus() : SocketError("recv");
    }
    buffer_.Append(std::string_view(bytes, static_cast<size_t>(n)));
    while (true) {
      BATON_ASSIGN_OR_RETURN(const auto frame, buffer_.Next(/*max_body=*/64));
      if (!frame.has_value()) break;
      BATON_RETURN_IF_ERROR(queue_.OnFrame(frame->type, frame->body));
    }
  }
}

}  // namespace baton::kvtransfer
