#include "kv/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace baton::kv {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;

// Kernel 5.1; older headers lack the name.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

absl::Status SystemError(const char* what, uint64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("KV arena of ", bytes, " bytes: ", what, ": ", std::strerror(errno)));
}

// Our own mapping exists already; the seals bind everyone who is given the descriptor afterwards.
absl::Status Seal(int fd, uint64_t bytes) {
  const int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;
  if (fcntl(fd, F_ADD_SEALS, size_seals | F_SEAL_FUTURE_WRITE) == 0) return absl::OkStatus();
  if (errno != EINVAL) return SystemError("sealing", bytes);
  if (fcntl(fd, F_ADD_SEALS, size_seals) == 0) return absl::OkStatus();
  return SystemError("sealing", bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvArena>> KvArena::Create(const KvLayout& layout,
                                                         const Options& options) {
  BATON_RETURN_IF_ERROR(layout.Validate());
  if (options.blocks.size() != layout.groups.size()) {
    return absl::InvalidArgumentError("KV arena: one block count per group is needed");
  }
  for (uint32_t blocks : options.blocks) {
    if (blocks == 0) return absl::InvalidArgumentError("KV arena: a group has no block");
  }
  std::unique_ptr<KvArena> arena(new KvArena(layout, options));
  BATON_RETURN_IF_ERROR(arena->Map(options.shareable));
  if (options.sealed) arena->seals_ = std::make_unique<PieceSeals>(layout, options.blocks);
  return arena;
}

KvArena::KvArena(const KvLayout& layout, const Options& options)
    : layout_(layout), blocks_(options.blocks) {
  PlaceRegions();
}

KvArena::~KvArena() {
  if (base_ != nullptr) munmap(base_, total_bytes_);
  if (fd_ >= 0) close(fd_);
}

void KvArena::PlaceRegions() {
  for (uint32_t layer = 0; layer < layout_.layers.size(); ++layer) {
    const KvLayerSpec& spec = layout_.layers[layer];
    regions_.emplace_back();
    for (uint32_t arena = 0; arena < spec.arenas.size(); ++arena) {
      const uint64_t bytes = blocks_[spec.group] * layout_.PieceBytes(layer, arena);
      const uint64_t offset = AlignUp(total_bytes_, bytes >= kHugePage ? kHugePage : kPage);
      regions_.back().push_back({offset, bytes});
      total_bytes_ = offset + AlignUp(bytes, kPage);
    }
  }
  total_bytes_ = AlignUp(total_bytes_, kHugePage);
}

// Not in the headers of Debian 12; since Linux 6.1.
constexpr int kCollapse = 25;  // MADV_COLLAPSE

absl::Status KvArena::Map(bool shareable) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (shareable) {
    fd_ = memfd_create("baton-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd_ < 0) return SystemError("memfd_create", total_bytes_);
    if (ftruncate(fd_, static_cast<off_t>(total_bytes_)) != 0) {
      return SystemError("ftruncate", total_bytes_);
    }
    flags = MAP_SHARED;
  }
  // Reserve one huge page more than needed, then map over the aligned part of it.
  const uint64_t reserved = total_bytes_ + kHugePage;
  void* area =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) return SystemError("mmap", total_bytes_);
  auto* begin = static_cast<std::byte*>(area);
  auto* aligned =
      reinterpret_cast<std::byte*>(AlignUp(reinterpret_cast<uint64_t>(area), kHugePage));
  void* mapped = mmap(aligned, total_bytes_, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd_, 0);
  if (mapped == MAP_FAILED) {
    munmap(area, reserved);
    return SystemError("mmap", total_bytes_);
  }
  if (aligned != begin) munmap(begin, aligned - begin);
  munmap(aligned + total_bytes_, begin + reserved - (aligned + total_bytes_));
  base_ = aligned;
  madvise(base_, total_bytes_, MADV_HUGEPAGE);  // advice: may be refused
  if (shareable) {
    BATON_RETURN_IF_ERROR(Seal(fd_, total_bytes_));
    // Shared memory gets huge pages only when asked now, whatever the system's default is. They
    // spare both processes page walks and first-touch faults; a refusal costs only that.
    madvise(base_, total_bytes_, kCollapse);
  }
  view_.layout = &layout_;
  for (uint32_t layer = 0; layer < regions_.size(); ++layer) {
    view_.base.emplace_back();
    view_.piece_bytes.emplace_back();
    for (uint32_t arena = 0; arena < regions_[layer].size(); ++arena) {
      view_.base.back().push_back(base_ + regions_[layer][arena].offset);
      view_.piece_bytes.back().push_back(layout_.PieceBytes(layer, arena));
    }
  }
  return absl::OkStatus();
}

std::span<std::byte> KvArena::Piece(uint32_t layer, uint32_t arena, BlockId block) {
  BATON_CHECK(block < blocks_[layout_.layers[layer].group]);
  return {view_.Piece(layer, arena, block), view_.piece_bytes[layer][arena]};
}

std::span<const std::byte> KvArena::Piece(uint32_t layer, uint32_t arena, BlockId block) const {
  BATON_CHECK(block < blocks_[layout_.layers[layer].group]);
  return {view_.Piece(layer, arena, block), view_.piece_bytes[layer][arena]};
}

void KvArena::ZeroBlock(uint32_t group, BlockId block) {
  for (uint32_t layer = 0; layer < layout_.layers.size(); ++layer) {
    const KvLayerSpec& spec = layout_.layers[layer];
    if (spec.group != group) continue;
    for (uint32_t arena = 0; arena < spec.arenas.size(); ++arena) {
      const auto piece = Piece(layer, arena, block);
      std::memset(piece.data(), 0, piece.size());
    }
  }
}

}  // namespace baton::kv
