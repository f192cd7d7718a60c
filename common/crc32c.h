// CRC-32C (Castagnoli), as iSCSI and ext4 use it. SSE4.2 when the CPU has it, chosen at run time.
#ifndef BATON_COMMON_CRC32C_H_
#define BATON_COMMON_CRC32C_H_

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

}  // namespace baton

#endif  // BATON_COMMON_CRC32C_H_
