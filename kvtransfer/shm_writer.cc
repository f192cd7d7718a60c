#include "kvtransfer/shm_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/status_macros.h"
#include "kvtransfer/frame.h"

namespace baton::kvtransfer {
namespace {

constexpr size_t kTableBytes = kGenerationSlots * sizeof(uint64_t);
// So much of blocks per call: fewer wake the sink more often, and without seals it copies while the
// next CRCs are computed.
constexpr size_t kBatchBytes = size_t{2} << 20;

ShmArenaFrame Describe(const kv::KvArena& arena) {
  const kv::KvLayout& layout = arena.layout();
  ShmArenaFrame frame;
  frame.layers = static_cast<uint32_t>(layout.layers.size());
  for (const kv::KvLayerSpec& layer : layout.layers) {
    frame.arenas = std::max(frame.arenas, static_cast<uint32_t>(layer.arenas.size()));
  }
  for (uint32_t layer = 0; layer < frame.layers; ++layer) {
    for (uint32_t a = 0; a < frame.arenas; ++a) {
      const bool exists = a < layout.layers[layer].arenas.size();
      const kv::KvArena::Region region = exists ? arena.region(layer, a) : kv::KvArena::Region{};
      frame.regions.push_back({region.offset, region.bytes});
    }
  }
  return frame;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmGenerations>> ShmGenerations::Create() {
  UniqueFd fd(memfd_create("baton-generations", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ftruncate(fd.get(), kTableBytes) != 0) return SocketError("memfd");
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return SocketError("seal");
  void* const at = mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return SocketError("mmap");
  return std::unique_ptr<ShmGenerations>(
      new ShmGenerations(std::move(fd), static_cast<uint64_t*>(at)));
}

ShmGenerations::~ShmGenerations() { munmap(slots_, kTableBytes); }

std::optional<GenerationTable::Slot> ShmGenerations::Take() {
  MutexLock lock(mutex_);
  uint32_t index = never_used_;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (never_used_ < kGenerationSlots) {
    ++never_used_;
  } else {
    return std::nullopt;
  }
  return Slot{index, __atomic_load_n(&slots_[index], __ATOMIC_RELAXED)};
}

void ShmGenerations::Retire(uint32_t index) {
  MutexLock lock(mutex_);
  __atomic_fetch_add(&slots_[index], 1, __ATOMIC_SEQ_CST);
  // Before any write into the blocks that were shown under the old generation.
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  free_.push_back(index);
}

ShmWriter::ShmWriter(const kv::KvArena& arena, const ShmGenerations& generations)
    : arena_(arena), generations_(generations) {}

absl::Status ShmWriter::Start(SendQueue& queue) {
  outgoing_ = queue.Hello() + Encode(Describe(arena_));
  return absl::OkStatus();
}

std::string ShmWriter::Reference(const OutFrame& frame, SendQueue& queue) {
  if (!frame.is_piece()) return frame.bytes;
  if (!queue.Enter(frame)) return "";
  const uint32_t crc = queue.FrameCrc(frame);
  queue.Leave(frame);
  return Encode(
      PieceRefFrame{frame.header, crc, frame.generation_slot, frame.generation, frame.blocks});
}

void ShmWriter::Fill(SendQueue& queue) {
  size_t payload = 0;
  while (payload < kBatchBytes) {
    const std::optional<OutFrame> frame = queue.Next();
    if (!frame.has_value()) return;
    outgoing_ += Reference(*frame, queue);
    payload += frame->header.length;
  }
}

absl::StatusOr<bool> ShmWriter::SendStart(int socket) {
  const int fds[2] = {arena_.fd(), generations_.fd()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
  iovec part{outgoing_.data(), outgoing_.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(header), fds, sizeof fds);
  const ssize_t n = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0) {
    if (errno == EAGAIN || errno == EINTR) return false;
    return SocketError("sendmsg");
  }
  started_ = true;
  sent_ += static_cast<size_t>(n);
  return true;
}

absl::StatusOr<bool> ShmWriter::WriteSome(int socket, SendQueue& queue) {
  if (!started_) {
    BATON_ASSIGN_OR_RETURN(const bool sent, SendStart(socket));
    if (!sent) return true;
  }
  while (true) {
    if (sent_ == outgoing_.size()) {
      outgoing_.clear();
      sent_ = 0;
      Fill(queue);
      if (outgoing_.empty()) return false;
    }
    const ssize_t n = send(socket, outgoing_.data() + sent_, outgoing_.size() - sent_,
                           MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      sent_ += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      return true;
    } else if (errno != EINTR) {
      return SocketError("send");
    }
  }
}

}  // namespace baton::kvtransfer
