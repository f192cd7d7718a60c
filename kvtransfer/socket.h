// The few socket calls that the transports need, with their errors as Status.
#ifndef BATON_KVTRANSFER_SOCKET_H_
#define BATON_KVTRANSFER_SOCKET_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tcp.h"
#include "common/time.h"

namespace baton::kvtransfer {

// Wakes a thread that waits in WaitReady.
class Wakeup {
 public:
  Wakeup();
  // Any thread.
  void Signal();
  // The woken thread.
  void Clear();
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::atomic<bool> signalled_{false};  // spares the system call while nobody has cleared it
};

struct Ready {
  bool socket = false;
  bool woken = false;
};
// Waits for the socket (readable, also writable when `write`) or the wakeup, which it clears.
// Neither: `timeout` passed; a negative one never does.
Ready WaitReady(int socket, bool write, Wakeup& wakeup, Duration timeout);

// All sockets are non-blocking and closed on exec.
//
// host: a numeric address or empty (any). Port 0: the kernel chooses.
absl::StatusOr<UniqueFd> ListenTcp(const std::string& host, uint16_t port);
absl::StatusOr<uint16_t> PortOf(int socket);
// The first numeric address of `host`; resolves names, so not on a core's thread.
absl::StatusOr<std::string> NumericHost(const std::string& host);
// After a socket that was connecting got ready.
absl::Status ConnectResult(int socket);

// Abstract names: they exist only as long as somebody listens.
absl::StatusOr<UniqueFd> ListenUnix(std::string_view name);
absl::StatusOr<UniqueFd> ConnectUnix(std::string_view name);
// PERMISSION_DENIED when the peer is another user's process.
absl::Status CheckPeerUser(int socket);

// Invalid when nobody waits.
UniqueFd AcceptOne(int listener);

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SOCKET_H_
