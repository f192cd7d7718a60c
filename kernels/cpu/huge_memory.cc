#include "kernels/cpu/huge_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton::kernels::cpu {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kMinMapping = uint64_t{32} << 20;
// Kernels prefetch and read vectors a little past the end of what they use.
constexpr uint64_t kSlack = 4096;

uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

HugeMemory::~HugeMemory() {
  for (const Mapping& mapping : mappings_) munmap(mapping.begin, mapping.bytes);
}

absl::StatusOr<std::byte*> HugeMemory::Allocate(uint64_t bytes) {
  bytes = AlignUp(bytes, 128);
  if (bytes > left_) BATON_RETURN_IF_ERROR(AddMapping(bytes));
  std::byte* result = free_;
  free_ += bytes;
  left_ -= bytes;
  return result;
}

absl::Status HugeMemory::AddMapping(uint64_t bytes) {
  const uint64_t usable = AlignUp(std::max(bytes, kMinMapping), kHugePage);
  const uint64_t mapped = usable + kHugePage + kSlack;
  void* area = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("weights: mmap of ", mapped, " bytes: ", std::strerror(errno)));
  }
  mappings_.push_back({static_cast<std::byte*>(area), mapped});
  free_ = reinterpret_cast<std::byte*>(AlignUp(reinterpret_cast<uint64_t>(area), kHugePage));
  left_ = usable;
  madvise(free_, usable, MADV_HUGEPAGE);  // advice: may be refused
  return absl::OkStatus();
}

}  // namespace baton::kernels::cpu
