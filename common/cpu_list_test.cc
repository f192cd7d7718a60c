#include "common/cpu_list.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(CpuListTest, TakesNumbersAndRanges) {
  EXPECT_EQ(*ParseCpuList("0"), (std::vector<unsigned>{0}));
  EXPECT_EQ(*ParseCpuList("0,2-4,1023"), (std::vector<unsigned>{0, 2, 3, 4, 1023}));
}

TEST(CpuListTest, RefusesEverythingElse) {
  for (const char* text : {"", ",", "1,", "1,,2", "2-1", "1-", "-1", "1024", "0-4294967295", "a",
                           "1 ,2", "99999999999"}) {
    EXPECT_EQ(ParseCpuList(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace baton
