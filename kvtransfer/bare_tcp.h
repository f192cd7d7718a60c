// The same pieces over loopback TCP by two processes that do nothing else: no frames, no CRC, no
// credits. What the tcp row of the transfer benchmark is to be compared with.
#ifndef BATON_KVTRANSFER_BARE_TCP_H_
#define BATON_KVTRANSFER_BARE_TCP_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kvtransfer/socket.h"

namespace baton::kvtransfer {

// Of one round, in order; sums and sizes of both sides are equal.
using BareTargets = std::function<std::vector<std::span<std::byte>>(uint32_t round)>;

// The receiving process: receives one round after the other, each into its targets, and answers
// each with a byte. Returns when the sender has closed. Ends the process on a socket's error.
void ReceiveBare(UniqueFd connection, const BareTargets& targets);

class BareSender {
 public:
  explicit BareSender(UniqueFd connection) : connection_(std::move(connection)) {}

  // Until the receiver has answered.
  void Send(const std::vector<std::span<const std::byte>>& pieces);

 private:
  UniqueFd connection_;
};

// A listening socket on loopback, and connections to it, with TCP_NODELAY; they block.
UniqueFd ListenBare();
UniqueFd AcceptBare(const UniqueFd& listener);
UniqueFd ConnectBare(const UniqueFd& listener);

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_BARE_TCP_H_
