// The few socket calls that the transports need, with their errors as Status.
#ifndef BATON_KVTRANSFER_SOCKET_H_
#define BATON_KVTRANSFER_SOCKET_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/time.h"

namespace baton::kvtransfer {

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// The error text of errno; no addresses in it.
absl::Status SocketError(std::string_view what);

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
// Begins to connect to "HOST:PORT", HOST numeric (IPv6 in brackets).
absl::StatusOr<UniqueFd> StartConnectTcp(std::string_view host_port);
// After a socket that was connecting got ready.
absl::Status ConnectResult(int socket);
// No delay; and an idle connection ends after ten seconds without an answer from the peer's kernel:
// a host that vanished sends no FIN.
absl::Status SetTcpOptions(int socket);

// Abstract names: they exist only as long as somebody listens.
absl::StatusOr<UniqueFd> ListenUnix(std::string_view name);
absl::StatusOr<UniqueFd> ConnectUnix(std::string_view name);
// PERMISSION_DENIED when the peer is another user's process.
absl::Status CheckPeerUser(int socket);

// Invalid when nobody waits.
UniqueFd AcceptOne(int listener);

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SOCKET_H_
