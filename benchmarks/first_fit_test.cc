#include "benchmarks/first_fit.h"

#include "gtest/gtest.h"

namespace baton::benchmarks {
namespace {

TEST(FirstFitTest, TakesTheFirstGapThatIsLongEnough) {
  FirstFit memory(100);
  EXPECT_EQ(memory.Take(30), 0u);
  EXPECT_EQ(memory.Take(30), 30u);
  EXPECT_EQ(memory.Take(30), 60u);
  memory.Free(0);
  memory.Free(60);
  EXPECT_EQ(memory.Take(31), 60u);
  EXPECT_EQ(memory.Take(10), 0u);
  EXPECT_EQ(memory.Take(20), 10u);
}

TEST(FirstFitTest, FreeSlotsInPiecesAreOfNoUse) {
  FirstFit memory(100);
  EXPECT_EQ(memory.Take(40), 0u);
  EXPECT_EQ(memory.Take(20), 40u);
  EXPECT_EQ(memory.Take(40), 60u);
  memory.Free(0);
  memory.Free(60);
  EXPECT_EQ(memory.Take(41), std::nullopt);
  EXPECT_EQ(memory.Take(40), 0u);
  EXPECT_EQ(memory.Take(41), std::nullopt);
  EXPECT_EQ(memory.Take(40), 60u);
}

TEST(FirstFitTest, NothingBeyondTheEnd) {
  FirstFit memory(10);
  EXPECT_EQ(memory.Take(11), std::nullopt);
  EXPECT_EQ(memory.Take(10), 0u);
  EXPECT_EQ(memory.Take(1), std::nullopt);
}

}  // namespace
}  // namespace baton::benchmarks
