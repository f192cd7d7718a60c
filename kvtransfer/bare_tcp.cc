#include "kvtransfer/bare_tcp.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"

namespace baton::kvtransfer {
namespace {

constexpr size_t kParts = 512;

// Takes `bytes` from the front of `parts`, of which `first` is the first with any left.
void Advance(std::vector<iovec>& parts, size_t& first, size_t bytes) {
  while (bytes > 0) {
    iovec& part = parts[first];
    const size_t n = std::min(bytes, part.iov_len);
    part.iov_base = static_cast<char*>(part.iov_base) + n;
    part.iov_len -= n;
    bytes -= n;
    if (part.iov_len == 0) ++first;
  }
}

template <typename Call>
void Transfer(std::vector<iovec> parts, Call call) {
  for (size_t first = 0; first < parts.size();) {
    msghdr message{};
    message.msg_iov = &parts[first];
    message.msg_iovlen = std::min(kParts, parts.size() - first);
    const ssize_t n = call(&message);
    BATON_CHECK(n > 0);
    Advance(parts, first, static_cast<size_t>(n));
  }
}

UniqueFd Blocking(UniqueFd socket) {
  BATON_CHECK(fcntl(socket.get(), F_SETFL, 0) == 0);
  BATON_CHECK(SetTcpOptions(socket.get()).ok());
  return socket;
}

}  // namespace

UniqueFd ListenBare() {
  auto listener = ListenTcp("127.0.0.1", 0);
  BATON_CHECK(listener.ok());
  return *std::move(listener);
}

UniqueFd AcceptBare(const UniqueFd& listener) {
  pollfd waiting{listener.get(), POLLIN, 0};
  BATON_CHECK(poll(&waiting, 1, -1) == 1);
  return Blocking(AcceptOne(listener.get()));
}

UniqueFd ConnectBare(const UniqueFd& listener) {
  auto socket = StartConnectTcp("127.0.0.1:" + std::to_string(*PortOf(listener.get())));
  BATON_CHECK(socket.ok());
  pollfd connecting{socket->get(), POLLOUT, 0};
  BATON_CHECK(poll(&connecting, 1, -1) == 1 && ConnectResult(socket->get()).ok());
  return Blocking(*std::move(socket));
}

void ReceiveBare(UniqueFd connection, const BareTargets& targets) {
  char probe;
  for (uint32_t round = 0; recv(connection.get(), &probe, 1, MSG_PEEK) == 1; ++round) {
    std::vector<iovec> parts;
    for (const auto target : targets(round)) parts.push_back({target.data(), target.size()});
    Transfer(std::move(parts),
             [&](msghdr* message) { return recvmsg(connection.get(), message, 0); });
    BATON_CHECK(send(connection.get(), &probe, 1, MSG_NOSIGNAL) == 1);
  }
}

void BareSender::Send(const std::vector<std::span<const std::byte>>& pieces) {
  std::vector<iovec> parts;
  for (const auto piece : pieces) {
    parts.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
  }
  Transfer(std::move(parts),
           [&](msghdr* message) { return sendmsg(connection_.get(), message, MSG_NOSIGNAL); });
  char answer;
  BATON_CHECK(recv(connection_.get(), &answer, 1, 0) == 1);
}

}  // namespace baton::kvtransfer
