#include "common/random.h"

#include <set>

#include "gtest/gtest.h"

namespace baton {
namespace {

class ListedRandom : public Random {
 public:
  uint64_t Next64() override { return values_[next_++]; }

 private:
  uint64_t values_[4] = {0, 0, 5, 6};
  size_t next_ = 0;
};

// The published splitmix64 sequence for seed 1234567.
TEST(RandomTest, SeededNumbersAreTheSameEverywhere) {
  SeededRandom random(1234567);
  EXPECT_EQ(random.Next64(), 6457827717110365317u);
  EXPECT_EQ(random.Next64(), 3203168211198807973u);
}

TEST(RandomTest, EpochsDifferAndAreNeverZero) {
  OsRandom os;
  std::set<Epoch> epochs;
  for (int i = 0; i < 1000; ++i) epochs.insert(NewEpoch(os));
  EXPECT_EQ(epochs.size(), 1000u);
  ListedRandom zeros_first;
  EXPECT_EQ(NewEpoch(zeros_first), (Epoch{5, 6}));
}

TEST(RandomTest, BelowAndUnitStayInRange) {
  SeededRandom random(1);
  int counts[3] = {};
  for (int i = 0; i < 3000; ++i) {
    ++counts[random.Below(3)];
    const double unit = random.Unit();
    ASSERT_GE(unit, 0);
    ASSERT_LT(unit, 1);
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  EXPECT_EQ(random.Below(1), 0u);
}

}  // namespace
}  // namespace baton
