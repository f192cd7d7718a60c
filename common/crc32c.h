// CRC-32C (Castagnoli), as iSCSI and ext4 use it. SSE4.2 when the CPU has it, chosen at run time.
#ifndef BATON_COMMON_CRC32C_H_
#define BATON_COMMON_CRC32C_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

// The CRC of (what `crc` covers) + `data`. Start from 0.
uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> data);

inline uint32_t Crc32c(std::span<const std::byte> data) { return ExtendCrc32c(0, data); }

// Copies `n` bytes and extends `crc` by exactly the bytes that were written to `dst`: each is read
// from `src` once, so a source that changes meanwhile cannot make copy and CRC disagree. The ranges
// do not overlap.
uint32_t CopyAndCrc32c(std::byte* dst, const std::byte* src, size_t n, uint32_t crc);

// Puts CRCs together: of A followed by B, from those of A and of B, without reading them.
class Crc32cConcat {
 public:
  // For a B of `bytes` bytes. Takes some microseconds.
  explicit Crc32cConcat(uint64_t bytes);

  uint32_t operator()(uint32_t a, uint32_t b) const {
    return table_[0][a & 0xff] ^ table_[1][(a >> 8) & 0xff] ^ table_[2][(a >> 16) & 0xff] ^
           table_[3][a >> 24] ^ b;
  }

 private:
  // table_[k][n]: byte n of place k of a CRC, moved over `bytes` zero bytes.
  std::array<std::array<uint32_t, 256>, 4> table_;
};

}  // namespace baton

#endif  // BATON_COMMON_CRC32C_H_
