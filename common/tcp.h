// The beginning of a TCP connection, with errors as Status.
#ifndef BATON_COMMON_TCP_H_
#define BATON_COMMON_TCP_H_

#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

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
  // To somebody who closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// The error text of errno; no addresses in it.
absl::Status SocketError(std::string_view what);

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
// Stream addresses of getaddrinfo, at least one. An empty host is any. INVALID_ARGUMENT.
absl::StatusOr<AddressList> ResolveTcp(const std::string& host, const std::string& port, int flags);

// All sockets are non-blocking and closed on exec.
inline constexpr int kTcpSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

// Begins to connect to "HOST:PORT", HOST numeric (IPv6 in brackets).
absl::StatusOr<UniqueFd> StartConnectTcp(std::string_view host_port);
// No delay; and an idle connection ends after ten seconds without an answer from the peer's kernel:
// a host that vanished sends no FIN.
absl::Status SetTcpOptions(int socket);

}  // namespace baton

#endif  // BATON_COMMON_TCP_H_
