// A program below avx2_only.so sees a processor whose newest vectors are AVX2, and all the rest of
// the one that it runs on. Where cpuid cannot be made to fault it does not run at all.
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace baton::bench {
namespace {

using Words = std::array<uint32_t, 4>;  // eax, ebx, ecx, edx

struct Said {
  int status = -1;  // of wait(2)
  std::map<std::string, Words> leaves;
  std::string supports;
};

Said Run(const std::string& before, const std::string& arguments = "") {
  std::FILE* const pipe =
      ::popen((before + " exec benchmarks/print_cpuid" + arguments + " 2>/dev/null").c_str(), "r");
  Said said;
  char line[256];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name == "supports") {
      std::getline(words, said.supports);
    } else {
      for (uint32_t& word : said.leaves[name]) words >> std::hex >> word;
    }
  }
  said.status = ::pclose(pipe);
  return said;
}

Said Plain() { return Run(""); }
Said Hidden(const std::string& arguments = "") {
  return Run("LD_PRELOAD=$PWD/benchmarks/avx2_only.so", arguments);
}

bool CpuidCanFault() {
  std::ifstream info("/proc/cpuinfo");
  std::stringstream text;
  text << info.rdbuf();
  return text.str().find(" cpuid_fault") != std::string::npos;
}

void ExpectRefused(const Said& hidden) {
  ASSERT_TRUE(WIFEXITED(hidden.status));
  EXPECT_EQ(WEXITSTATUS(hidden.status), 1);
  EXPECT_TRUE(hidden.leaves.empty());
}

// Of leaf 7, by Intel's manual (volume 2, CPUID).
constexpr Words kNewer = {
    0,
    1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31,
    1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14,
    1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25,
};

TEST(Avx2Only, LeavesOutWhatIsNewerAndNothingElse) {
  const Said plain = Plain();
  const Said hidden = Hidden();
  if (!CpuidCanFault()) return ExpectRefused(hidden);
  ASSERT_EQ(hidden.status, 0);
  ASSERT_EQ(hidden.leaves.size(), 6u);
  for (const std::string who : {"main", "thread"}) {
    EXPECT_EQ(hidden.leaves.at(who + ".1.0"), plain.leaves.at(who + ".1.0"));
    EXPECT_EQ(hidden.leaves.at(who + ".7.1"), Words{});
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(hidden.leaves.at(who + ".7.0")[i], plain.leaves.at(who + ".7.0")[i] & ~kNewer[i]);
    }
  }
}

TEST(Avx2Only, TheCompilersDetectionBelievesIt) {
  if (!CpuidCanFault()) return ExpectRefused(Hidden());
  const bool avx2 = (Plain().leaves.at("main.7.0")[1] >> 5 & 1) != 0;
  EXPECT_EQ(Hidden().supports, std::string(" avx2 ") + (avx2 ? "1" : "0") + " avx512f 0");
}

TEST(Avx2Only, AProgramsOwnFaultStillEndsIt) {
  if (!CpuidCanFault()) return ExpectRefused(Hidden(" --crash"));
  const int status = Hidden(" --crash").status;
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
}

}  // namespace
}  // namespace baton::bench
