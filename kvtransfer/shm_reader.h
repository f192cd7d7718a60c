// Reads frames of a shm connection and copies the blocks that they name out of the source's arena.
#ifndef BATON_KVTRANSFER_SHM_READER_H_
#define BATON_KVTRANSFER_SHM_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/layout.h"
#include "kvtransfer/copy_helper.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/frame_buffer.h"
#include "kvtransfer/receive_connection.h"
#include "kvtransfer/socket.h"
#include "kvtransfer/socket_sink.h"

namespace baton::kvtransfer {

// A peer's memfd, mapped read-only. It cannot shrink under us.
class PeerMemory {
 public:
  PeerMemory() = default;
  PeerMemory(PeerMemory&& other) noexcept;
  PeerMemory& operator=(PeerMemory&& other) noexcept;
  ~PeerMemory();

  // INVALID_ARGUMENT unless `fd` is memory sealed against shrinking, of at least `least_bytes`.
  static absl::StatusOr<PeerMemory> Map(int fd, uint64_t least_bytes);

  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

class ShmReader : public FrameReader {
 public:
  // The sink's layout; equal to the source's (the session compared fingerprints). `helper` must
  // outlive the reader; others may use it too.
  ShmReader(const kv::KvLayout& layout, CopyHelper& helper) : layout_(layout), helper_(helper) {}

  absl::StatusOr<bool> ReadSome(int socket, ReceiveConnection& connection) override;

 private:
  // A reference that was checked and is not copied yet.
  struct Pending {
    PieceRefFrame frame;
    Landing landing;
    bool entered = false;
    std::optional<size_t> run =
        std::nullopt;  // which of the runs that are copied; nothing: given up
  };

  absl::StatusOr<bool> Receive(int socket);
  absl::Status Handle(const FrameBuffer::Whole& frame, ReceiveConnection& connection);
  absl::Status OnArena(ShmArenaFrame frame);
  absl::Status OnPieceRef(std::string_view body, ReceiveConnection& connection);
  absl::Status CheckReference(const PieceRefFrame& frame) const;
  bool StillValid(const PieceRefFrame& frame) const;
  bool ContinuesPending(const PieceHeader& header) const;
  CopyRun RunOf(const PieceRefFrame& frame, const Landing& landing) const;
  void CopyPending(ReceiveConnection& connection);

  const kv::KvLayout layout_;
  CopyHelper& helper_;
  FrameBuffer buffer_;
  std::vector<UniqueFd> fds_;  // received, not used yet
  ShmArenaFrame arena_;
  PeerMemory memory_;
  PeerMemory generations_;
  std::vector<Pending> pending_;
  size_t pending_bytes_ = 0;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SHM_READER_H_
