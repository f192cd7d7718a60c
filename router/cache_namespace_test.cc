#include "router/cache_namespace.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace baton::router {
namespace {

std::string Of(std::string tenant, std::string salt, Digest numerics_id = {1, 2}) {
  RequestSpec spec;
  spec.tenant = std::move(tenant);
  spec.cache_salt = std::move(salt);
  return CacheNamespace(spec, numerics_id);
}

TEST(CacheNamespace, DiffersWithNumericsTenantAndSalt) {
  std::set<std::string> seen;
  const auto fresh = [&](std::string space) { return seen.insert(std::move(space)).second; };
  EXPECT_TRUE(fresh(Of("", "")));
  EXPECT_TRUE(fresh(Of("a", "")));
  EXPECT_TRUE(fresh(Of("", "a")));
  EXPECT_TRUE(fresh(Of("ab", "c")));
  EXPECT_TRUE(fresh(Of("a", "bc")));
  EXPECT_TRUE(fresh(Of("a", std::string(1, '\0'))));
  EXPECT_TRUE(fresh(Of("ab", "c", {2, 1})));
  EXPECT_FALSE(fresh(Of("ab", "c")));
}

TEST(CacheNamespace, IsADigestThatAWorkerTakes) {
  EXPECT_EQ(Of(std::string(128, 't'), std::string(128, 's')).size(), 16u);
}

TEST(CacheNamespace, IsEmptyWithoutACache) {
  RequestSpec spec;
  spec.tenant = "t";
  spec.bypass_cache = true;
  EXPECT_EQ(CacheNamespace(spec, {1, 2}), "");
}

}  // namespace
}  // namespace baton::router
