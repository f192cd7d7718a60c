#include "kvtransfer/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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

constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) return absl::InvalidArgumentError("not an address: " + host);
  return AddressList(list, &freeaddrinfo);
}

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

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

absl::Status SocketError(std::string_view what) {
  return absl::UnavailableError(std::string(what) + ": " + std::strerror(errno));
}

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
  BATON_ASSIGN_OR_RETURN(const AddressList list, Resolve(host, std::to_string(port), AI_PASSIVE));
  UniqueFd fd(socket(list->ai_family, kSocketFlags, 0));
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
  BATON_ASSIGN_OR_RETURN(const AddressList list, Resolve(host, "", 0));
  char text[NI_MAXHOST];
  if (getnameinfo(list->ai_addr, list->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) !=
      0) {
    return absl::InvalidArgumentError("not an address: " + host);
  }
  return list->ai_family == AF_INET6 ? "[" + std::string(text) + "]" : std::string(text);
}

absl::StatusOr<UniqueFd> StartConnectTcp(std::string_view host_port) {
  const size_t colon = host_port.rfind(':');
  if (colon == std::string_view::npos) return absl::InvalidArgumentError("no port");
  std::string host(host_port.substr(0, colon));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) return absl::InvalidArgumentError("no host");
  BATON_ASSIGN_OR_RETURN(
      const AddressList list,
      Resolve(host, std::string(host_port.substr(colon + 1)), AI_NUMERICHOST | AI_NUMERICSERV));
  UniqueFd fd(socket(list->ai_family, kSocketFlags, 0));
  if (!fd.valid()) return SocketError("socket");
  if (connect(fd.get(), list->ai_addr, list->ai_addrlen) != 0 && errno != EINPROGRESS) {
    return SocketError("connect");
  }
  return fd;
}

absl::Status ConnectResult(int socket) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return SocketError("connect");
  errno = error;
  return error == 0 ? absl::OkStatus() : SocketError("connect");
}

absl::Status SetTcpOptions(int socket) {
  const struct {
    int level, name, value;
  } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                 {SOL_SOCKET, SO_KEEPALIVE, 1},
                 {IPPROTO_TCP, TCP_KEEPIDLE, 5},
                 {IPPROTO_TCP, TCP_KEEPINTVL, 1},
                 {IPPROTO_TCP, TCP_KEEPCNT, 5}};
  for (const auto& option : options) {
    if (setsockopt(socket, option.level, option.name, &option.value, sizeof option.value) != 0) {
      return SocketError("setsockopt");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> ListenUnix(std::string_view name) {
  BATON_ASSIGN_OR_RETURN(const UnixAddress to, Abstract(name));
  UniqueFd fd(socket(AF_UNIX, kSocketFlags, 0));
  if (!fd.valid()) return SocketError("socket");
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&to.address), to.length) != 0) {
    return SocketError("bind");
  }
  if (listen(fd.get(), 128) != 0) return SocketError("listen");
  return fd;
}

absl::StatusOr<UniqueFd> ConnectUnix(std::string_view name) {
  BATON_ASSIGN_OR_RETURN(const UnixAddress to, Abstract(name));
  UniqueFd fd(socket(AF_UNIX, kSocketFlags, 0));
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
