#include "kvtransfer/shm_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/checked.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "kvtransfer/shm_writer.h"

namespace baton::kvtransfer {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
// Copied at once, when the references are there: two threads that copy wait for each other less
// often.
constexpr size_t kBatchBytes = size_t{2} << 20;

}  // namespace

PeerMemory::PeerMemory(PeerMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PeerMemory& PeerMemory::operator=(PeerMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PeerMemory::~PeerMemory() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

absl::StatusOr<PeerMemory> PeerMemory::Map(int fd, uint64_t least_bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("shared memory is not sealed against shrinking");
  }
  struct stat status {};
  if (fstat(fd, &status) != 0) return SocketError("fstat");
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size == 0 || size < least_bytes) {
    return absl::InvalidArgumentError("shared memory is too small");
  }
  // Aligned so that huge pages of the source are huge pages here.
  const uint64_t reserved = size + kHugePage;
  void* const area =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) return SocketError("mmap");
  const auto begin = reinterpret_cast<uintptr_t>(area);
  const uintptr_t aligned = (begin + kHugePage - 1) / kHugePage * kHugePage;
  void* const at =
      mmap(reinterpret_cast<void*>(aligned), size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
  if (at == MAP_FAILED) {
    const absl::Status error = SocketError("mmap");
    munmap(area, reserved);
    return error;
  }
  const uintptr_t end = aligned + (size + kPage - 1) / kPage * kPage;
  if (aligned != begin) munmap(area, aligned - begin);
  munmap(reinterpret_cast<void*>(end), begin + reserved - end);
  // The first transfer shall not pay for the page table.
  madvise(at, size, MADV_POPULATE_READ);
  PeerMemory memory;
  memory.data_ = static_cast<const std::byte*>(at);
  memory.size_ = size;
  return memory;
}

absl::StatusOr<bool> ShmReader::Receive(int socket) {
  std::array<char, 64 << 10> bytes;
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) {
    if (errno == EINTR) return true;
    if (errno == EAGAIN) return false;
    return SocketError("recvmsg");
  }
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= c->cmsg_len; at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
      fds_.emplace_back(fd);
    }
  }
  if (fds_.size() > 2) return absl::InvalidArgumentError("too many descriptors");
  if (n == 0) return absl::UnavailableError("the source ended the data connection");
  buffer_.Append(std::string_view(bytes.data(), static_cast<size_t>(n)));
  return true;
}

absl::StatusOr<bool> ShmReader::ReadSome(int socket, ReceiveConnection& connection) {
  const uint32_t max_body = connection.greeted() ? kMaxBodyBytes : 64;
  while (pending_bytes_ < kBatchBytes) {
    BATON_ASSIGN_OR_RETURN(const auto frame, buffer_.Next(max_body));
    if (!frame.has_value()) {
      if (pending_.empty()) return Receive(socket);
      break;
    }
    if (frame->type != FrameType::kPieceRef) {
      CopyPending(connection);
      BATON_RETURN_IF_ERROR(Handle(*frame, connection));
      return true;
    }
    BATON_RETURN_IF_ERROR(OnPieceRef(frame->body, connection));
  }
  CopyPending(connection);
  return true;
}

absl::Status ShmReader::Handle(const FrameBuffer::Whole& frame, ReceiveConnection& connection) {
  if (frame.type != FrameType::kShmArena) return connection.OnFrame(frame.type, frame.body);
  if (!connection.greeted()) return absl::InvalidArgumentError("the first frame is not a hello");
  BATON_ASSIGN_OR_RETURN(ShmArenaFrame arena, DecodeShmArena(frame.body));
  return OnArena(std::move(arena));
}

absl::Status ShmReader::OnArena(ShmArenaFrame frame) {
  if (memory_.data() != nullptr) return absl::InvalidArgumentError("second arena");
  if (fds_.size() != 2) return absl::InvalidArgumentError("an arena without its descriptors");
  if (frame.layers != layout_.layers.size()) return absl::InvalidArgumentError("arena: layers");
  BATON_ASSIGN_OR_RETURN(memory_, PeerMemory::Map(fds_[0].get(), 1));
  BATON_ASSIGN_OR_RETURN(generations_,
                         PeerMemory::Map(fds_[1].get(), kGenerationSlots * sizeof(uint64_t)));
  fds_.clear();
  for (const ShmRegion& region : frame.regions) {
    const auto end = CheckedAdd(region.offset, region.bytes);
    if (!end || *end > memory_.size()) return absl::InvalidArgumentError("arena: region");
  }
  arena_ = std::move(frame);
  return absl::OkStatus();
}

// After BeginPiece has checked layer and arena against the layout.
absl::Status ShmReader::CheckReference(const PieceRefFrame& frame) const {
  const PieceHeader& header = frame.header;
  if (header.layer >= layout_.layers.size() ||
      header.arena >= layout_.layers[header.layer].arenas.size() || header.arena >= arena_.arenas) {
    return absl::InvalidArgumentError("reference: layer or arena out of range");
  }
  const uint64_t piece_bytes = layout_.PieceBytes(header.layer, header.arena);
  if (header.offset >= piece_bytes) return absl::InvalidArgumentError("reference: offset");
  const uint64_t touched =
      (uint64_t{header.offset} + header.length + piece_bytes - 1) / piece_bytes;
  if (frame.blocks.size() != touched) {
    return absl::InvalidArgumentError("reference: number of blocks");
  }
  if (frame.generation_slot >= kGenerationSlots) {
    return absl::InvalidArgumentError("reference: generation slot");
  }
  const uint64_t room =
      arena_.regions[uint64_t{header.layer} * arena_.arenas + header.arena].bytes / piece_bytes;
  for (const uint32_t block : frame.blocks) {
    if (block >= room) return absl::InvalidArgumentError("reference: block out of range");
  }
  return absl::OkStatus();
}

bool ShmReader::StillValid(const PieceRefFrame& frame) const {
  const auto* const slots = reinterpret_cast<const uint64_t*>(generations_.data());
  __atomic_thread_fence(__ATOMIC_SEQ_CST);  // after the copy, when it is the second look
  const bool valid =
      __atomic_load_n(&slots[frame.generation_slot], __ATOMIC_SEQ_CST) == frame.generation;
  return valid;
}

CopyRun ShmReader::RunOf(const PieceRefFrame& frame, const Landing& landing) const {
  const PieceHeader& header = frame.header;
  const uint64_t piece_bytes = layout_.PieceBytes(header.layer, header.arena);
  const std::byte* const region =
      memory_.data() + arena_.regions[uint64_t{header.layer} * arena_.arenas + header.arena].offset;
  CopyRun run;
  run.crc = Crc32c(AsBytes(EncodePieceHead(header)));
  run.parts.reserve(frame.blocks.size());
  uint64_t offset = header.offset;
  for (size_t i = 0; i < landing.targets().size(); ++i, offset = 0) {
    const auto target = landing.targets()[i];
    run.parts.push_back(
        {target.data(), region + frame.blocks[i] * piece_bytes + offset, target.size()});
  }
  return run;
}

// Whether a piece of the same place waits: what comes now continues or repeats it, and is checked
// against what has landed.
bool ShmReader::ContinuesPending(const PieceHeader& header) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const Pending& pending) {
    const PieceHeader& other = pending.frame.header;
    return other.attempt == header.attempt && other.layer == header.layer &&
           other.arena == header.arena;
  });
}

absl::Status ShmReader::OnPieceRef(std::string_view body, ReceiveConnection& connection) {
  if (!connection.greeted()) return absl::InvalidArgumentError("the first frame is not a hello");
  if (memory_.data() == nullptr) return absl::InvalidArgumentError("reference without an arena");
  BATON_ASSIGN_OR_RETURN(PieceRefFrame frame, DecodePieceRef(body));
  if (ContinuesPending(frame.header)) CopyPending(connection);
  BATON_ASSIGN_OR_RETURN(Landing landing, connection.BeginPiece(frame.header));
  BATON_RETURN_IF_ERROR(CheckReference(frame));
  pending_bytes_ += landing.length();
  pending_.push_back({std::move(frame), std::move(landing)});
  return absl::OkStatus();
}

void ShmReader::CopyPending(ReceiveConnection& connection) {
  std::vector<CopyRun> runs;
  for (Pending& pending : pending_) {
    pending.entered = connection.Enter(pending.landing);
    if (!pending.entered || !StillValid(pending.frame)) continue;
    pending.run = runs.size();
    runs.push_back(RunOf(pending.frame, pending.landing));
  }
  helper_.CopyAndCrc(runs);
  for (Pending& pending : pending_) {
    using Verdict = ReceiveConnection::Verdict;
    Verdict verdict = Verdict::kGivenUp;
    // What was copied while the source took its blocks back is not the piece, nor damage.
    if (pending.run.has_value() && StillValid(pending.frame)) {
      const bool intact = runs[*pending.run].crc == pending.frame.crc;
      verdict = intact ? Verdict::kIntact : Verdict::kDamaged;
    }
    if (pending.entered) connection.Leave(pending.landing);
    connection.EndPiece(pending.landing, verdict);
  }
  pending_.clear();
  pending_bytes_ = 0;
}

}  // namespace baton::kvtransfer
