#include "kv/cache_event_log.h"

#include <vector>

#include "gtest/gtest.h"

namespace baton::kv {
namespace {

CacheEvent Event(uint32_t ordinal) {
  CacheEvent event;
  event.ordinal = ordinal;
  return event;
}

std::vector<uint32_t> Ordinals(const CacheEventBatch& batch) {
  std::vector<uint32_t> ordinals;
  for (const CacheEvent& event : batch.events) ordinals.push_back(event.ordinal);
  return ordinals;
}

TEST(CacheEventLogTest, ReadersGoOnWhereTheyStopped) {
  CacheEventLog log(10);
  EXPECT_EQ(log.next_sequence(), 1u);
  for (uint32_t i = 1; i <= 5; ++i) log.Add(Event(i));
  const CacheEventBatch first = log.From(1, 3);
  EXPECT_EQ(first.first_sequence, 1u);
  EXPECT_EQ(Ordinals(first), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(Ordinals(log.From(first.next_sequence(), 3)), (std::vector<uint32_t>{4, 5}));
  const CacheEventBatch none = log.From(6, 3);
  EXPECT_TRUE(none.events.empty());
  EXPECT_EQ(none.first_sequence, 6u);
}

TEST(CacheEventLogTest, WhoeverIsTooLateSeesAGap) {
  CacheEventLog log(3);
  for (uint32_t i = 1; i <= 5; ++i) log.Add(Event(i));
  const CacheEventBatch batch = log.From(1, 10);
  EXPECT_EQ(batch.first_sequence, 3u);
  EXPECT_EQ(Ordinals(batch), (std::vector<uint32_t>{3, 4, 5}));
  EXPECT_EQ(log.next_sequence(), 6u);
}

}  // namespace
}  // namespace baton::kv
