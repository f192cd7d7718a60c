#include "common/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/status_macros.h"

namespace baton {

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

absl::Status SocketError(std::string_view what) {
  return absl::UnavailableError(std::string(what) + ": " + std::strerror(errno));
}

absl::StatusOr<AddressList> ResolveTcp(const std::string& host, const std::string& port,
                                       int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) return absl::InvalidArgumentError("not an address: " + host);
  return AddressList(list, &freeaddrinfo);
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
      ResolveTcp(host, std::string(host_port.substr(colon + 1)), AI_NUMERICHOST | AI_NUMERICSERV));
  UniqueFd fd(socket(list->ai_family, kTcpSocketFlags, 0));
  if (!fd.valid()) return SocketError("socket");
  if (connect(fd.get(), list->ai_addr, list->ai_addrlen) != 0 && errno != EINPROGRESS) {
    return SocketError("connect");
  }
  return fd;
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

}  // namespace baton
