#include "kvtransfer/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "common/check.h"
#include "common/status_macros.h"

namespace baton::kvtransfer {
namespace {

struct UnixAddress {
  sockaddr_un address{};
  socklen_t length = 0;
};

absl::StatusOr<UnixAddress> Abstract(std::string_view name) {
  UnixAddress made;
  made.address.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof made.address.sun_path) {
    return absl::InvalidArgumentError("socket name too long or empty");
  }
  std::memcpy(made.address.sun_path + 1, name.data(), name.size());
  made.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return made;
}

}  // namespace

Wakeup::Wakeup() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { BATON_CHECK(fd_.valid()); }

void Wakeup::Signal() {
  if (signalled_.exchange(true)) return;
  const uint64_t one = 1;
  // Full only when it is signalled already.
  [[maybe_unused]] const ssize_t n = write(fd_.get(), &one, sizeof one);
}

void Wakeup::Clear() {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = read(fd_.get(), &count, sizeof count);
  // An exchange: what was done before a Signal that came too early to write is seen from here on.
  signalled_.exchange(false);
}

Ready WaitReady(int socket, bool write, Wakeup& wakeup, Duration timeout) {
  pollfd fds[2] = {{socket, static_cast<short>(write ? POLLIN | POLLOUT : POLLIN), 0},
                   {wakeup.fd(), POLLIN, 0}};
  const auto timeout_ms =
      timeout.count() < 0 ? -1 : static_cast<int>(timeout / std::chrono::milliseconds(1)) + 1;
  if (poll(fds, 2, timeout_ms) <= 0) return {};
  const Ready ready{fds[0].revents != 0, fds[1].revents != 0};
  if (ready.woken) wakeup.Clear();
  return ready;
}

absl::StatusOr<UniqueFd> ListenTcp(const std::string& host, uint16_t port) {
  BATON_ASSIGN_OR_RETURN(const AddressList list,
                         ResolveTcp(host, std::to_string(port), AI_PASSIVE));
  UniqueFd fd(socket(list->ai_family, kTcpSocketFlags, 0));
  if (!fd.valid()) return SocketError("socket");
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd.get(), list->ai_addr, list->ai_addrlen) != 0) return SocketError("bind");
  if (listen(fd.get(), 128) != 0) return SocketError("listen");
  return fd;
}

absl::StatusOr<uint16_t> PortOf(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return SocketError("getsockname");
  }
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

absl::StatusOr<std::string> NumericHost(const std::string& host) {
  BATON_ASSIGN_OR_RETURN(const AddressList list, ResolveTcp(host, "", 0));
  char text[NI_MAXHOST];
  if (getnameinfo(list->ai_addr, list->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) !=
      0) {
    return absl::InvalidArgumentError("not an address: " + host);
  }
  return list->ai_family == AF_INET6 ? "[" + std::string(text) + "]" : std::string(text);
}

absl::Status ConnectResult(int socket) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return SocketError("connect");
  errno = error;
  return error == 0 ? absl::OkStatus() : SocketError("connect");
}

absl::StatusOr<UniqueFd> ListenUnix(std::string_view name) {
  BATON_ASSIGN_OR_RETURN(const UnixAddress to, Abstract(name));
  UniqueFd fd(socket(AF_UNIX, kTcpSocketFlags, 0));
  if (!fd.valid()) return SocketError("socket");
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&to.address), to.length) != 0) {
    return SocketError("bind");
  }
  if (listen(fd.get(), 128) != 0) return SocketError("listen");
  return fd;
}

absl::StatusOr<UniqueFd> ConnectUnix(std::string_view name) {
  BATON_ASSIGN_OR_RETURN(const UnixAddress to, Abstract(name));
  UniqueFd fd(socket(AF_UNIX, kTcpSocketFlags, 0));
  if (!fd.valid()) return SocketError("socket");
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.address), to.length) != 0) {
    return SocketError("connect");
  }
  return fd;
}

absl::Status CheckPeerUser(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return SocketError("SO_PEERCRED");
  }
  if (peer.uid != geteuid()) return absl::PermissionDeniedError("a process of another user");
  return absl::OkStatus();
}

UniqueFd AcceptOne(int listener) {
  return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

}  // namespace baton::kvtransfer
