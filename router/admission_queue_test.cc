#include "router/admission_queue.h"

#include <chrono>
#include <vector>

#include "gtest/gtest.h"

namespace baton::router {
namespace {

using std::chrono::seconds;

class AdmissionQueueTest : public testing::Test {
 protected:
  QueuedRequest Make(const std::string& tenant, int rank_s, uint64_t tokens = 10) {
    counters_.Hold(tenant);
    return {++last_, tenant, Time(seconds(rank_s)), tokens};
  }
  uint64_t Add(const std::string& tenant, int rank_s, uint64_t tokens = 10) {
    queue_.Add(Make(tenant, rank_s, tokens));
    return last_;
  }
  // Serves everybody; the order by number.
  std::vector<uint64_t> Drain() {
    std::vector<uint64_t> order;
    while (queue_.anyone_waits()) {
      order.push_back(queue_.Next());
      counters_.Charge(counters_.Next(), 10);
      queue_.Remove(order.back());
    }
    return order;
  }

  TenantCounters counters_{100};
  AdmissionQueue queue_{counters_};
  uint64_t last_ = 0;
};

TEST_F(AdmissionQueueTest, WithinATenantTheSmallestRankIsNextThenTheOlderNumber) {
  Add("", 5);
  Add("", 3);
  Add("", 5);
  Add("", 4);
  EXPECT_EQ(Drain(), std::vector<uint64_t>({2, 4, 1, 3}));
}

TEST_F(AdmissionQueueTest, TenantsTakeTurnsHoweverLongTheirLines) {
  for (int i = 0; i < 6; ++i) Add("many", i);
  for (int i = 0; i < 2; ++i) Add("few", 100 + i);
  const std::vector<uint64_t> order = Drain();
  EXPECT_EQ(std::vector<uint64_t>(order.begin(), order.begin() + 4),
            std::vector<uint64_t>({7, 1, 8, 2}));
}

TEST_F(AdmissionQueueTest, PausedRequestsKeepTheirPlaceInTheCountsAndAreNeverNext) {
  queue_.Pause(Make("t", 1, 30));
  EXPECT_EQ(queue_.requests(), 1u);
  EXPECT_EQ(queue_.prompt_tokens(), 30u);
  EXPECT_FALSE(queue_.anyone_waits());
  Add("t", 2, 5);
  EXPECT_EQ(queue_.Next(), 2u);
  queue_.Resume(1);
  EXPECT_EQ(queue_.Next(), 1u);
  queue_.Remove(1);
  queue_.Remove(1);
  EXPECT_EQ(queue_.prompt_tokens(), 5u);
  queue_.Clear();
  EXPECT_EQ(queue_.requests(), 0u);
  EXPECT_EQ(queue_.prompt_tokens(), 0u);
  EXPECT_FALSE(queue_.anyone_waits());
}

TEST_F(AdmissionQueueTest, APausedRequestCanLeave) {
  queue_.Pause(Make("t", 1, 30));
  queue_.Remove(1);
  EXPECT_EQ(queue_.requests(), 0u);
}

TEST_F(AdmissionQueueTest, TokensBeforeCountsTheOwnLineUpToTheRankAndTheFairPartOfOthers) {
  for (int i = 0; i < 4; ++i) Add("mine", i, 10);
  for (int i = 0; i < 100; ++i) Add("hog", i, 10);
  // Ranks 0, 1 and 2 of the own line; the hog gets as much meanwhile.
  EXPECT_EQ(queue_.TokensBefore({0, "mine", Time(seconds(2)), 10}), 60u);
  EXPECT_EQ(queue_.TokensBefore({0, "mine", Time(seconds(-1)), 10}), 0u);
  EXPECT_EQ(queue_.TokensBefore({0, "new", Time(seconds(500)), 10}), 0u);
  counters_.Charge("mine", 25);
  EXPECT_EQ(queue_.TokensBefore({0, "mine", Time(seconds(0)), 10}), 10u + 35u);
}

}  // namespace
}  // namespace baton::router
