// Private to crc32c: the implementations behind the dispatch. `state` is the inverted CRC.
#ifndef BATON_COMMON_CRC32C_KERNELS_H_
#define BATON_COMMON_CRC32C_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace baton::crc32c {

uint32_t ExtendPortable(uint32_t state, const std::byte* data, size_t n);
uint32_t CopyPortable(std::byte* dst, const std::byte* src, size_t n, uint32_t state);

// Need SSE4.2 and PCLMULQDQ.
uint32_t ExtendSse42(uint32_t state, const std::byte* data, size_t n);
uint32_t CopySse42(std::byte* dst, const std::byte* src, size_t n, uint32_t state);

bool HasSse42();

// Need AVX2 and VPCLMULQDQ beside these.
uint32_t ExtendVpclmul(uint32_t state, const std::byte* data, size_t n);
uint32_t CopyVpclmul(std::byte* dst, const std::byte* src, size_t n, uint32_t state);

bool HasVpclmul();

}  // namespace baton::crc32c

#endif  // BATON_COMMON_CRC32C_KERNELS_H_
