#include "common/crc32c.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "common/crc32c_kernels.h"
#include "common/random.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<std::byte> RandomBytes(size_t n, uint64_t seed) {
  SeededRandom random(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.Next64());
  return bytes;
}

// RFC 3720, appendix B.4.
TEST(Crc32cTest, KnownVectors) {
  EXPECT_EQ(Crc32c(Bytes("")), 0u);
  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xe3069283u);
  std::vector<std::byte> bytes(32, std::byte{0});
  EXPECT_EQ(Crc32c(bytes), 0x8a9136aau);
  std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
  EXPECT_EQ(Crc32c(bytes), 0x62a8ab43u);
  for (size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(Crc32c(bytes), 0x46dd794eu);
  std::reverse(bytes.begin(), bytes.end());
  EXPECT_EQ(Crc32c(bytes), 0x113fdb5cu);
}

TEST(Crc32cTest, AnyCutGivesTheSameCrc) {
  const auto bytes = RandomBytes(10'000, 1);
  const std::span<const std::byte> all(bytes);
  const uint32_t whole = Crc32c(all);
  for (const size_t cut : {0u, 1u, 7u, 8u, 3071u, 3072u, 3073u, 6144u, 9999u, 10'000u}) {
    EXPECT_EQ(ExtendCrc32c(Crc32c(all.first(cut)), all.subspan(cut)), whole) << cut;
  }
}

TEST(Crc32cTest, AllImplementationsAgreeAtEveryLengthAndAlignment) {
  if (!crc32c::HasSse42()) GTEST_SKIP() << "this CPU has no SSE4.2 with PCLMULQDQ";
  const auto bytes = RandomBytes(20'000, 2);
  SeededRandom random(3);
  for (int i = 0; i < 500; ++i) {
    const size_t offset = random.Below(16);
    const size_t n = random.Below(bytes.size() - offset);
    const auto state = static_cast<uint32_t>(random.Next64());
    const uint32_t expected = crc32c::ExtendPortable(state, bytes.data() + offset, n);
    ASSERT_EQ(crc32c::ExtendSse42(state, bytes.data() + offset, n), expected)
        << "offset " << offset << " length " << n;
    if (!crc32c::HasVpclmul()) continue;
    ASSERT_EQ(crc32c::ExtendVpclmul(state, bytes.data() + offset, n), expected)
        << "offset " << offset << " length " << n;
  }
}

using CopyFunction = uint32_t (*)(std::byte*, const std::byte*, size_t, uint32_t);

void ExpectCopies(CopyFunction copy, const std::vector<std::byte>& bytes, size_t n) {
  const std::byte guard{0x5a};
  std::vector<std::byte> out(n + 2, guard);
  const uint32_t state = copy(out.data() + 1, bytes.data(), n, 7);
  EXPECT_EQ(state, crc32c::ExtendPortable(7, bytes.data(), n)) << n;
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n), out.begin() + 1))
      << n;
  EXPECT_EQ(out.front(), guard);
  EXPECT_EQ(out.back(), guard);
}

TEST(Crc32cTest, CopyWritesExactlyTheBytesItCounts) {
  const auto bytes = RandomBytes(10'000, 4);
  for (const size_t n :
       {0u, 1u, 8u, 9u, 255u, 256u, 257u, 512u, 3071u, 3072u, 3080u, 6144u, 6999u, 9216u, 9999u}) {
    ExpectCopies(crc32c::CopyPortable, bytes, n);
    if (crc32c::HasSse42()) ExpectCopies(crc32c::CopySse42, bytes, n);
    if (crc32c::HasVpclmul()) ExpectCopies(crc32c::CopyVpclmul, bytes, n);
  }
}

TEST(Crc32cTest, CopyExtendsWhatCameBefore) {
  const auto bytes = RandomBytes(5000, 5);
  std::vector<std::byte> out(bytes.size());
  const std::span<const std::byte> all(bytes);
  const uint32_t header = Crc32c(all.first(40));
  EXPECT_EQ(CopyAndCrc32c(out.data(), bytes.data() + 40, 4960, header), Crc32c(all));
}

TEST(Crc32cTest, ConcatIsTheCrcOfBothPartsInARow) {
  const auto bytes = RandomBytes(9000, 6);
  const std::span<const std::byte> all(bytes);
  for (const size_t tail : {0u, 1u, 63u, 256u, 6144u, 9000u}) {
    const size_t head = all.size() - tail;
    const uint32_t joined = Crc32cConcat(tail)(Crc32c(all.first(head)), Crc32c(all.subspan(head)));
    EXPECT_EQ(joined, Crc32c(all)) << tail;
  }
}

}  // namespace
}  // namespace baton
