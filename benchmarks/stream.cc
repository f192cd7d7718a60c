#include "benchmarks/stream.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "common/check.h"

namespace baton::benchmarks {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kAhead = 256;  // words: 2 KiB, which the hardware alone does not always reach

uint64_t* AllocateHuge(size_t bytes) {
  void* const memory = std::aligned_alloc(kHugePage, bytes);
  BATON_CHECK(memory != nullptr);
  (void)madvise(memory, bytes, MADV_HUGEPAGE);  // a wish
  return static_cast<uint64_t*>(memory);
}

}  // namespace

StreamBuffer::StreamBuffer(uint64_t value) : data_(AllocateHuge(bytes())) {
  std::fill_n(data_, words(), value);
}

StreamBuffer::~StreamBuffer() { std::free(data_); }

uint64_t Sum(const uint64_t* data, size_t words) {
  uint64_t lanes[16] = {};
  for (size_t i = 0; i < words; i += 16) {
    // Past the end it asks for what is not there, which is allowed.
    __builtin_prefetch(data + i + kAhead);
    __builtin_prefetch(data + i + kAhead + 8);
    for (size_t lane = 0; lane < 16; ++lane) lanes[lane] += data[i + lane];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum += lane;
  return sum;
}

}  // namespace baton::benchmarks
