// Memory for packed weights: few large mappings in 2 MiB pages, released together.
#ifndef BATON_KERNELS_CPU_HUGE_MEMORY_H_
#define BATON_KERNELS_CPU_HUGE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::kernels::cpu {

// Hands out zeroed pieces that live as long as this object. Thread-compatible.
class HugeMemory {
 public:
  HugeMemory() = default;
  ~HugeMemory();
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  // Aligned to 128 bytes. RESOURCE_EXHAUSTED when the memory cannot be had.
  absl::StatusOr<std::byte*> Allocate(uint64_t bytes);

 private:
  struct Mapping {
    std::byte* begin = nullptr;
    uint64_t bytes = 0;
  };
  absl::Status AddMapping(uint64_t bytes);

  std::vector<Mapping> mappings_;
  std::byte* free_ = nullptr;  // within the last mapping
  uint64_t left_ = 0;
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_HUGE_MEMORY_H_
