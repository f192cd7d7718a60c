#include "kvtransfer/tcp_writer.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "common/crc32c.h"

namespace baton::kvtransfer {
namespace {

// Small enough that what the CRC has read is still in the cache when the kernel copies it.
constexpr size_t kBatchBytes = size_t{256} << 10;
constexpr size_t kMaxParts = 1024;  // IOV_MAX

iovec Part(const void* data, size_t bytes) { return {const_cast<void*>(data), bytes}; }

// Fills up a piece that is given up after its head is on the wire.
const std::array<char, 64 << 10>& Zeros() {
  static const std::array<char, 64 << 10> zeros{};
  return zeros;
}

}  // namespace

absl::Status TcpWriter::Start(SendQueue& queue) {
  OutFrame hello;
  hello.bytes = queue.Hello();
  Add(std::move(hello), queue);
  return absl::OkStatus();
}

void TcpWriter::Add(OutFrame frame, SendQueue& queue) {
  batch_.emplace_back();
  Pending& pending = batch_.back();
  pending.frame = std::move(frame);
  const OutFrame& added = pending.frame;
  pending.parts.push_back(Part(added.bytes.data(), added.bytes.size()));
  if (added.is_piece()) {
    if (!queue.Enter(added)) return batch_.pop_back();
    for (const auto span : added.payload) {
      pending.parts.push_back(Part(span.data(), span.size()));
    }
    pending.trailer = EncodeTrailer(queue.FrameCrc(added));
    queue.Leave(added);
    pending.parts.push_back(Part(pending.trailer.data(), pending.trailer.size()));
  }
  for (const iovec& part : pending.parts) pending.bytes += part.iov_len;
}

void TcpWriter::Fill(SendQueue& queue) {
  size_t bytes = 0;
  size_t parts = 0;
  for (const Pending& pending : batch_) {
    bytes += pending.bytes;
    parts += pending.parts.size() - pending.first;
  }
  while (bytes < kBatchBytes && parts < kMaxParts / 2) {
    std::optional<OutFrame> frame = queue.Next();
    if (!frame.has_value()) return;
    const size_t before = batch_.size();
    Add(*std::move(frame), queue);
    if (batch_.size() == before) continue;
    bytes += batch_.back().bytes;
    parts += batch_.back().parts.size();
  }
}

void TcpWriter::GiveUp(Pending& pending) {
  pending.given_up = true;
  pending.trailer = EncodeTrailer(GivenUpTrailer(Crc32c(AsBytes(pending.frame.bytes))));
  // The head is sent whole even when it was only begun: its place is first in `parts` then.
  const auto* const head_begin = pending.frame.bytes.data();
  const auto* const head_end = head_begin + pending.frame.bytes.size();
  std::vector<iovec> parts;
  size_t left = pending.bytes - kTrailerBytes;
  const auto* const first = static_cast<const char*>(pending.parts[pending.first].iov_base);
  if (first >= head_begin && first < head_end) {
    parts.push_back(pending.parts[pending.first]);
    left -= parts.front().iov_len;
  }
  while (left > 0) {
    const size_t n = std::min(left, Zeros().size());
    parts.push_back(Part(Zeros().data(), n));
    left -= n;
  }
  parts.push_back(Part(pending.trailer.data(), pending.trailer.size()));
  pending.parts = std::move(parts);
  pending.first = 0;
}

void TcpWriter::EnterAll(SendQueue& queue) {
  for (auto it = batch_.begin(); it != batch_.end();) {
    if (!it->frame.is_piece() || it->given_up || it->bytes <= kTrailerBytes) {
      ++it;
    } else if (queue.Enter(it->frame)) {
      entered_.push_back(&it->frame);
      ++it;
    } else if (it->started) {
      GiveUp(*it);
      ++it;
    } else {
      it = batch_.erase(it);
    }
  }
}

void TcpWriter::LeaveAll(SendQueue& queue) {
  for (const OutFrame* frame : entered_) queue.Leave(*frame);
  entered_.clear();
}

void TcpWriter::Advance(size_t sent) {
  while (sent > 0) {
    Pending& pending = batch_.front();
    pending.started = true;
    iovec& part = pending.parts[pending.first];
    const size_t n = std::min(sent, part.iov_len);
    part.iov_base = static_cast<char*>(part.iov_base) + n;
    part.iov_len -= n;
    pending.bytes -= n;
    sent -= n;
    if (part.iov_len == 0) ++pending.first;
    if (pending.bytes == 0) batch_.pop_front();
  }
}

absl::StatusOr<bool> TcpWriter::WriteSome(int socket, SendQueue& queue) {
  while (true) {
    Fill(queue);
    if (batch_.empty()) return false;
    EnterAll(queue);
    std::vector<iovec> parts;
    for (const Pending& pending : batch_) {
      for (size_t i = pending.first; i < pending.parts.size() && parts.size() < kMaxParts; ++i) {
        parts.push_back(pending.parts[i]);
      }
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t n = parts.empty() ? 0 : sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    const int error = errno;
    LeaveAll(queue);
    if (n >= 0) {
      Advance(static_cast<size_t>(n));
    } else if (error == EAGAIN) {
      return true;
    } else if (error != EINTR) {
      errno = error;
      return SocketError("send");
    }
  }
}

}  // namespace baton::kvtransfer
