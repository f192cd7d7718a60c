#include "kvtransfer/copy_helper.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "common/random.h"
#include "gtest/gtest.h"

namespace baton::kvtransfer {
namespace {

struct Memory {
  explicit Memory(uint64_t seed, size_t pieces, size_t piece_bytes)
      : from(pieces * piece_bytes), to(from.size()) {
    SeededRandom random(seed);
    for (std::byte& byte : from) byte = static_cast<std::byte>(random.Next64());
    // Targets in reverse order: the CRC follows the parts, not the addresses.
    for (size_t i = 0; i < pieces; ++i) {
      parts.push_back(
          {to.data() + (pieces - 1 - i) * piece_bytes, from.data() + i * piece_bytes, piece_bytes});
    }
  }
  bool Copied() const {
    return std::all_of(parts.begin(), parts.end(), [](const CopyPart& part) {
      return std::equal(part.from, part.from + part.bytes, part.to);
    });
  }

  std::vector<std::byte> from;
  std::vector<std::byte> to;
  std::vector<CopyPart> parts;
};

uint32_t CopyWith(CopyHelper& helper, const Memory& memory, uint32_t crc) {
  CopyRun run{memory.parts, crc};
  helper.CopyAndCrc({&run, 1});
  return run.crc;
}

TEST(CopyHelperTest, CopiesEveryPartAndItsCrcIsThatOfTheBytesInARow) {
  for (const bool start : {true, false}) {
    CopyHelper helper(start);
    // Small: alone. Whole stretches, an odd rest, parts above a stretch.
    for (const auto& [pieces, bytes] : std::vector<std::pair<size_t, size_t>>{
             {0, 64}, {1, 100}, {32, 8192}, {63, 6144}, {101, 1999}, {3, 100'000}}) {
      Memory memory(pieces + bytes, pieces, bytes);
      const uint32_t before = Crc32c(std::as_bytes(std::span("head", 4)));
      EXPECT_EQ(CopyWith(helper, memory, before), ExtendCrc32c(before, memory.from))
          << pieces << " of " << bytes;
      EXPECT_TRUE(memory.Copied()) << pieces << " of " << bytes;
    }
  }
}

TEST(CopyHelperTest, EachRunHasItsOwnCrc) {
  CopyHelper helper(true);
  Memory first(1, 40, 6144), second(2, 7, 100), third(3, 30, 6144);
  std::vector<CopyRun> runs = {{first.parts, 1}, {second.parts, 2}, {{}, 3}, {third.parts, 4}};
  helper.CopyAndCrc(runs);
  EXPECT_EQ(runs[0].crc, ExtendCrc32c(1, first.from));
  EXPECT_EQ(runs[1].crc, ExtendCrc32c(2, second.from));
  EXPECT_EQ(runs[2].crc, 3u);
  EXPECT_EQ(runs[3].crc, ExtendCrc32c(4, third.from));
  EXPECT_TRUE(first.Copied() && second.Copied() && third.Copied());
}

TEST(CopyHelperTest, ManyThreadsMayCallAtOnce) {
  CopyHelper helper(true);
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    threads.emplace_back([&helper, seed] {
      for (int round = 0; round < 200; ++round) {
        Memory memory(seed, 40, 6144);
        EXPECT_EQ(CopyWith(helper, memory, 0), Crc32c(memory.from));
        EXPECT_TRUE(memory.Copied());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CopyHelperTest, EndsWhileTheHelperSleepsOrSpins) {
  for (int i = 0; i < 20; ++i) {
    CopyHelper helper(true);
    Memory memory(1, 40, 6144);
    if (i % 2 == 0) CopyWith(helper, memory, 0);
  }
}

}  // namespace
}  // namespace baton::kvtransfer
