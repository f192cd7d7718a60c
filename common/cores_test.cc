#include "common/cores.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(CoresTest, ProcessesContendWhenTheirThreadsAreMoreThanTheirCores) {
  EXPECT_TRUE(Contend({"m", {0, 1}, 2}, {"m", {0, 1}, 2}));
  EXPECT_TRUE(Contend({"m", {0, 1}, 2}, {"m", {0, 1}, 1}));
  EXPECT_TRUE(Contend({"m", {0, 1}, 2}, {"m", {1, 2}, 2}));
  EXPECT_FALSE(Contend({"m", {0, 1}, 1}, {"m", {0, 1}, 1}));
  EXPECT_FALSE(Contend({"m", {0, 1, 2, 3}, 2}, {"m", {0, 1, 2, 3}, 2}));
}

TEST(CoresTest, NeitherOnCoresOfTheirOwnNorOnDifferentMachines) {
  EXPECT_FALSE(Contend({"m", {0, 1}, 8}, {"m", {2, 3}, 8}));
  EXPECT_FALSE(Contend({"m", {0, 1}, 2}, {"n", {0, 1}, 2}));
  EXPECT_FALSE(Contend({"m", {0, 1}, 2}, {"", {0, 1}, 2}));
  EXPECT_FALSE(Contend({"", {0, 1}, 2}, {"", {0, 1}, 2}));
  EXPECT_FALSE(Contend({"m", {}, 2}, {"m", {}, 2}));
}

TEST(CoresTest, OnesOwnAreThoseOfThisMachine) {
  const Cores cores = OwnCores(0);
  EXPECT_FALSE(cores.machine.empty());
  EXPECT_GE(cores.threads, 1u);
  EXPECT_EQ(cores.threads, cores.cpus.size());
  EXPECT_TRUE(Contend(cores, OwnCores(1)));
  EXPECT_EQ(OwnCores(7).threads, 7u);
}

}  // namespace
}  // namespace baton
