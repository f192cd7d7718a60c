// Data connections over TCP. The socket buffer of the kernel is the staging ring: the receive
// thread of a connection reads straight into the granted blocks.
#ifndef BATON_KVTRANSFER_TCP_TRANSPORT_H_
#define BATON_KVTRANSFER_TCP_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/executor.h"
#include "kv/arena.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

// One thread per connection on either side, and one that accepts. Addresses are "tcp:HOST:PORT".
class TcpTransport : public Transport {
 public:
  struct Options {
    std::string listen_host = "127.0.0.1";
    uint16_t listen_port = 0;        // 0: the kernel chooses
    std::string advertise_host;      // empty: listen_host
    uint16_t advertise_port = 0;     // 0: the one that is bound
    uint32_t max_connections = 256;  // of a listener; more are closed at once
  };

  // Must outlive this object. `arena` is what a source sends from; null for a mere sink.
  TcpTransport(Options options, Executor& executor, kv::KvArena* arena);

  std::string_view scheme() const override { return "tcp"; }
  std::unique_ptr<DataConnection> Connect(const ConnectRequest& request,
                                          DataConnection::Listener& listener) override;
  absl::StatusOr<std::unique_ptr<DataListener>> Listen(ReceiveTable& table) override;

 private:
  const Options options_;
  Executor& executor_;
  kv::KvArena* const arena_;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_TCP_TRANSPORT_H_
