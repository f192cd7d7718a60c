#include "kv/arena_pages.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "common/status_macros.h"

namespace baton::kv {
namespace {

constexpr uint64_t kChunk = uint64_t{2} << 20;  // a huge page: the kernel gives no less at once

constexpr int kNice = 10;  // a tenth of a core that others want

// Not in every system's headers; since Linux 5.14. As if each page were written, without a write.
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE

absl::Status Take(std::byte* begin, uint64_t bytes) {
  while (madvise(begin, bytes, kPopulateWrite) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    const std::string why = std::strerror(errno);
    if (errno == EINVAL) return absl::UnimplementedError("MADV_POPULATE_WRITE: " + why);
    return absl::ResourceExhaustedError("memory for KV blocks: " + why);
  }
  return absl::OkStatus();
}

}  // namespace

ArenaPages::ArenaPages(KvArena& arena, Done done) : arena_(arena) {
  thread_ = std::thread([this, done = std::move(done)] { Run(done); });
}

ArenaPages::~ArenaPages() {
  stop_ = true;
  thread_.join();
}

void ArenaPages::Run(const Done& done) {
  // Of this thread alone. Not the lowest: it holds the lock of the process's mappings meanwhile.
  setpriority(PRIO_PROCESS, 0, kNice);
  const absl::Status status = TakeAll();
  if (!stop_) done(status);
}

absl::Status ArenaPages::TakeAll() {
  bool more = true;
  for (uint64_t offset = 0; more && !stop_; offset += kChunk) {
    BATON_RETURN_IF_ERROR(TakeAt(offset, &more));
  }
  return absl::OkStatus();
}

absl::Status ArenaPages::TakeAt(uint64_t offset, bool* more) {
  *more = false;
  const KvLayout& layout = arena_.layout();
  for (uint32_t layer = 0; layer < layout.layers.size(); ++layer) {
    for (uint32_t part = 0; part < layout.layers[layer].arenas.size() && !stop_; ++part) {
      const uint64_t bytes = arena_.region(layer, part).bytes;
      if (offset >= bytes) continue;
      BATON_RETURN_IF_ERROR(
          Take(arena_.Piece(layer, part, 0).data() + offset, std::min(kChunk, bytes - offset)));
      *more |= offset + kChunk < bytes;
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::kv
