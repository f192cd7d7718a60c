#include "kernels/cpu/tiers.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/cpu/cpu_backend.h"

namespace baton::kernels::cpu {
namespace {

TEST(TiersTest, TheBestIsTheFirstThatRunsAndScalarIsTheLast) {
  const TierEntry* best = nullptr;
  std::set<std::string> names;
  for (const TierEntry& entry : Tiers()) {
    if (best == nullptr && entry.runs) best = &entry;
    EXPECT_TRUE(names.insert(entry.tier->name).second) << entry.tier->name;
    EXPECT_EQ(FindTier(entry.tier->name), &entry);
  }
  EXPECT_EQ(&BestTier(), best->tier);
  EXPECT_STREQ(Tiers().back().tier->name, "scalar");
  EXPECT_TRUE(Tiers().back().runs);
}

TEST(TiersTest, ATierIsForcedByNameOrRefused) {
  EXPECT_EQ(CreateCpuBackend({.threads = 1, .tier = "avx3"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  for (const TierEntry& entry : Tiers()) {
    const auto backend = CreateCpuBackend({.threads = 1, .tier = entry.tier->name});
    EXPECT_EQ(backend.status().code(),
              entry.runs ? absl::StatusCode::kOk : absl::StatusCode::kUnavailable)
        << entry.tier->name;
    if (entry.runs) {
      EXPECT_EQ((*backend)->numerics(), "cpu numerics v3, kv f16");
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
