#include "kvtransfer/tcp_reader.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "common/crc32c.h"
#include "common/status_macros.h"
#include "kvtransfer/frame.h"

namespace baton::kvtransfer {
namespace {

constexpr size_t kMaxParts = 512;
constexpr int kStepsAtOnce = 4;
constexpr size_t kReadAtOnce = size_t{256} << 10;

// The result of a read that found nothing: false to wait, or the connection's end.
absl::StatusOr<bool> NothingRead(ssize_t n) {
  if (n == 0) return absl::UnavailableError("the source ended the data connection");
  if (errno == EAGAIN) return false;
  if (errno == EINTR) return true;
  return SocketError("recv");
}

}  // namespace

absl::StatusOr<bool> TcpReader::ReadSome(int socket, ReceiveConnection& connection) {
  for (int step = 0; step < kStepsAtOnce; ++step) {
    BATON_ASSIGN_OR_RETURN(const bool more, Step(socket, connection));
    if (!more) return false;
  }
  return true;
}

absl::StatusOr<bool> TcpReader::More(int socket, size_t bytes) {
  const size_t have = bytes_.size();
  bytes_.resize(have + std::min(bytes, kReadAtOnce));
  const ssize_t n = recv(socket, bytes_.data() + have, bytes_.size() - have, 0);
  bytes_.resize(have + static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (n <= 0) return NothingRead(n);
  return true;
}

absl::StatusOr<bool> TcpReader::Step(int socket, ReceiveConnection& connection) {
  if (piece_.has_value() && piece_->left > 0) {
    return piece_->discarded ? Discard(socket) : ReadPayload(socket, connection);
  }
  if (piece_.has_value()) {
    if (bytes_.size() < kTrailerBytes) {
      return More(socket, kTrailerBytes + kPieceHeadBytes - bytes_.size());
    }
    EndPiece(connection);
    return true;
  }
  if (bytes_.size() < kPreludeBytes) return More(socket, kPieceHeadBytes - bytes_.size());
  BATON_ASSIGN_OR_RETURN(const Prelude prelude, DecodePrelude(bytes_));
  if (!connection.greeted() && prelude.type != FrameType::kHello) {
    return absl::InvalidArgumentError("the first frame is not a hello");
  }
  const bool is_piece = prelude.type == FrameType::kPiece;
  const size_t covered = is_piece ? kPieceHeadBytes : kPreludeBytes + prelude.body_bytes;
  const size_t needed = is_piece ? covered : covered + kTrailerBytes;
  if (bytes_.size() < needed) return More(socket, needed - bytes_.size());
  const std::string_view frame = std::string_view(bytes_).substr(0, covered);
  if (is_piece) {
    BATON_RETURN_IF_ERROR(BeginPiece(connection, prelude.body_bytes));
  } else {
    if (Crc32c(AsBytes(frame)) != DecodeTrailer(std::string_view(bytes_).substr(covered))) {
      return absl::DataLossError("CRC of a frame is wrong");
    }
    BATON_RETURN_IF_ERROR(connection.OnFrame(prelude.type, frame.substr(kPreludeBytes)));
  }
  bytes_.erase(0, needed);
  return true;
}

absl::Status TcpReader::BeginPiece(ReceiveConnection& connection, uint32_t body_bytes) {
  const std::string_view head = std::string_view(bytes_).substr(0, kPieceHeadBytes);
  const PieceHeader header = DecodePieceHeader(head.substr(kPreludeBytes));
  if (header.length != body_bytes - kPieceHeaderBytes) {
    return absl::InvalidArgumentError("piece: length differs from the frame's");
  }
  BATON_ASSIGN_OR_RETURN(Landing landing, connection.BeginPiece(header));
  Piece piece;
  piece.head_crc = Crc32c(AsBytes(head));
  piece.crc = piece.head_crc;
  piece.left = header.length;
  piece.discarded = landing.targets().empty();
  piece.landing = std::move(landing);
  piece_ = std::move(piece);
  return absl::OkStatus();
}

absl::StatusOr<bool> TcpReader::ReadPayload(int socket, ReceiveConnection& connection) {
  Piece& piece = *piece_;
  const auto& targets = piece.landing.targets();
  std::vector<iovec> parts;
  size_t room = 0;
  size_t offset = piece.offset;
  for (size_t i = piece.target; i < targets.size() && parts.size() < kMaxParts; ++i, offset = 0) {
    parts.push_back({targets[i].data() + offset, targets[i].size() - offset});
    room += parts.back().iov_len;
  }
  // Trailer and next head come with the last bytes, to spare calls.
  std::array<char, kTrailerBytes + kPieceHeadBytes> tail;
  if (room == piece.left) parts.push_back({tail.data(), tail.size()});
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  if (!connection.Enter(piece.landing)) {
    piece.discarded = true;
    return true;
  }
  const ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT);
  const size_t landed = n > 0 ? std::min(static_cast<size_t>(n), size_t{piece.left}) : 0;
  const int error = errno;
  Landed(landed);
  connection.Leave(piece.landing);
  errno = error;
  if (n <= 0) return NothingRead(n);
  bytes_.append(tail.data(), static_cast<size_t>(n) - landed);
  return true;
}

// `bytes` more are in the targets.
void TcpReader::Landed(size_t bytes) {
  Piece& piece = *piece_;
  piece.left -= static_cast<uint32_t>(bytes);
  while (bytes > 0) {
    const auto target = piece.landing.targets()[piece.target];
    const size_t n = std::min(bytes, target.size() - piece.offset);
    piece.crc = ExtendCrc32c(piece.crc, target.subspan(piece.offset, n));
    piece.offset += n;
    bytes -= n;
    if (piece.offset < target.size()) return;
    ++piece.target;
    piece.offset = 0;
  }
}

absl::StatusOr<bool> TcpReader::Discard(int socket) {
  std::array<char, 64 << 10> scratch;
  const size_t wanted = std::min(scratch.size(), size_t{piece_->left});
  const ssize_t n = recv(socket, scratch.data(), wanted, MSG_DONTWAIT);
  if (n <= 0) return NothingRead(n);
  piece_->left -= static_cast<uint32_t>(n);
  return true;
}

void TcpReader::EndPiece(ReceiveConnection& connection) {
  using Verdict = ReceiveConnection::Verdict;
  const uint32_t trailer = DecodeTrailer(bytes_);
  bytes_.erase(0, kTrailerBytes);
  const Verdict verdict = trailer == piece_->crc                        ? Verdict::kIntact
                          : trailer == GivenUpTrailer(piece_->head_crc) ? Verdict::kGivenUp
                                                                        : Verdict::kDamaged;
  connection.EndPiece(piece_->landing, verdict);
  piece_.reset();
}

}  // namespace baton::kvtransfer
