// Data connections within one host, by shared memory. The source shows its arena read-only (the
// memfd of a shareable KvArena, passed over a Unix socket); frames name blocks in it and the sink
// copies them, checking the generation before and after and the CRC of what it copied. The socket
// has an abstract name, so nothing is left behind by kill -9.
#ifndef BATON_KVTRANSFER_SHM_TRANSPORT_H_
#define BATON_KVTRANSFER_SHM_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/executor.h"
#include "kv/arena.h"
#include "kvtransfer/copy_helper.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

// One thread per connection on either side, one that accepts and one that helps to copy. Addresses
// are "shm:NAME"; NAME is random and only peers of the same user may connect.
class ShmTransport : public Transport {
 public:
  struct Options {
    uint32_t max_connections = 256;  // of a listener; more are closed at once
  };

  // Must outlive this object. `arena` is what a source sends from, made shareable; null for a mere
  // sink.
  ShmTransport(Options options, Executor& executor, kv::KvArena* arena);

  std::string_view scheme() const override { return "shm"; }
  std::unique_ptr<DataConnection> Connect(const ConnectRequest& request,
                                          DataConnection::Listener& listener) override;
  absl::StatusOr<std::unique_ptr<DataListener>> Listen(ReceiveTable& table) override;

 private:
  const Options options_;
  Executor& executor_;
  kv::KvArena* const arena_;
  std::unique_ptr<CopyHelper> helper_;  // from the first Listen on; of all connections
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SHM_TRANSPORT_H_
