// A control session over a connected socket between two processes, for the benchmark: what a gRPC
// stream is in production.
#ifndef BATON_KVTRANSFER_BENCH_STREAM_H_
#define BATON_KVTRANSFER_BENCH_STREAM_H_

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/executor.h"
#include "common/stream.h"
#include "kvtransfer/socket.h"

namespace baton::kvtransfer {

// Messages with a length before each. Blocks in Send, which the benchmark can bear.
template <typename Out, typename In>
class BenchStream : public Stream<Out, In> {
 public:
  using Listener = typename Stream<Out, In>::Listener;

  BenchStream(UniqueFd socket, Executor& executor, Listener& listener)
      : socket_(std::move(socket)),
        alive_(std::make_shared<bool>(true)),
        reader_([this, &executor, &listener] { Read(executor, listener); }) {}

  ~BenchStream() override {
    *alive_ = false;
    shutdown(socket_.get(), SHUT_RDWR);
    reader_.join();
  }

  void Send(Out message) override {
    std::string bytes(4, '\0');
    message.AppendToString(&bytes);
    const auto length = static_cast<uint32_t>(bytes.size() - 4);
    bytes.replace(0, 4, reinterpret_cast<const char*>(&length), 4);
    send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  void Close(absl::Status) override { shutdown(socket_.get(), SHUT_RDWR); }

 private:
  bool ReadExactly(void* to, size_t bytes) {
    return recv(socket_.get(), to, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }

  void Read(Executor& executor, Listener& listener) {
    uint32_t length;
    while (ReadExactly(&length, sizeof length)) {
      std::string bytes(length, '\0');
      if (length > 0 && !ReadExactly(bytes.data(), length)) break;
      In message;
      message.ParseFromString(bytes);
      executor.Post([alive = alive_, &listener, message = std::move(message)] {
        if (*alive) listener.OnMessage(message);
      });
    }
    executor.Post([alive = alive_, &listener] {
      if (*alive) listener.OnClosed(absl::UnavailableError("peer closed"));
    });
  }

  const UniqueFd socket_;
  const std::shared_ptr<bool> alive_;  // executor's thread only
  std::thread reader_;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_BENCH_STREAM_H_
