// Data connections within one process, for the simulator and for tests: the same frames, really
// encoded and decoded, carried between executors. No threads of its own.
#ifndef BATON_KVTRANSFER_IN_PROCESS_TRANSPORT_H_
#define BATON_KVTRANSFER_IN_PROCESS_TRANSPORT_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/executor.h"
#include "kv/arena.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

class InProcessListener;

// The wires. Single-threaded: all executors of one network run on one thread (or are one).
class InProcessNetwork {
 public:
  // One direction of a connection, as a carrier may tell them apart.
  struct Wire {
    std::string from;
    std::string to;
  };
  // Runs `deliver` on `to`, at once or later (never inside the call), or never: then the connection
  // hangs. Whatever the delays, frames of one wire arrive in order. `bytes` of a frame may be
  // changed here (damage); empty means "the connection ended".
  using Carrier = std::function<void(const Wire& wire, Executor& to, std::string& bytes,
                                     std::function<void()> deliver)>;

  InProcessNetwork();  // posts at once
  explicit InProcessNetwork(Carrier carrier);
  InProcessNetwork(const InProcessNetwork&) = delete;
  InProcessNetwork& operator=(const InProcessNetwork&) = delete;

  // For tests: a source that sends whatever bytes it likes ("" ends the connection) by the function
  // returned; `on_bytes` gets what comes back on `executor`, "" at the end. Null: nobody listens.
  std::function<void(std::string)> ConnectRaw(const std::string& address, Executor& executor,
                                              std::function<void(std::string)> on_bytes);

 private:
  friend class InProcessTransport;
  friend class InProcessListener;
  friend class InProcessConnection;
  const Carrier carrier_;
  std::map<std::string, InProcessListener*> listeners_;
};

// One node's end. Addresses are "inproc:NAME".
class InProcessTransport : public Transport {
 public:
  // All must outlive this object, and `executor` both ends of every connection of this node: an end
  // that goes tells the other. `arena` is what a source sends from; a node that is only a sink may
  // pass null.
  InProcessTransport(InProcessNetwork& network, std::string name, Executor& executor,
                     kv::KvArena* arena);

  std::string_view scheme() const override { return "inproc"; }
  std::unique_ptr<DataConnection> Connect(const ConnectRequest& request,
                                          DataConnection::Listener& listener) override;
  // UNAVAILABLE when the name is taken.
  absl::StatusOr<std::unique_ptr<DataListener>> Listen(ReceiveTable& table) override;

 private:
  InProcessNetwork& network_;
  const std::string name_;
  Executor& executor_;
  kv::KvArena* const arena_;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_IN_PROCESS_TRANSPORT_H_
