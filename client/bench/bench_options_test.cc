#include "client/bench/bench_options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace baton::client {
namespace {

const std::vector<std::string> kClosed = {"--target=t:1",       "--concurrency=8",
                                          "--requests=64",      "--prompt-tokens=10..20",
                                          "--output-tokens=30", "--seed=9"};

std::vector<std::string> With(std::vector<std::string> flags, const std::string& more) {
  flags.push_back(more);
  return flags;
}

std::string Refusal(const std::vector<std::string>& flags) {
  const auto options = ParseBenchOptions(flags);
  EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(options.status().message());
}

TEST(BenchOptionsTest, TakesAClosedLoop) {
  const auto options = ParseBenchOptions(kClosed);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->target, "t:1");
  EXPECT_EQ(options->plan.concurrency, 8u);
  EXPECT_EQ(options->plan.requests, 64u);
  EXPECT_EQ(options->plan.prompt_tokens->most, 20u);
  EXPECT_EQ(options->plan.seed, 9u);
}

TEST(BenchOptionsTest, TakesATraceWithItsSpeed) {
  const std::string path = testing::TempDir() + "/trace.csv";
  std::ofstream(path) << "arrival_us,input_tokens,output_tokens\n0,5,6\n";
  const auto options = ParseBenchOptions(
      {"--target=t:1", "--trace", path, "--speed", "0.1", "--jitter-ms=3000", "--ttft-limit=2s"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->plan.speed, 0.1);
  EXPECT_EQ(options->plan.jitter, 3);
  EXPECT_EQ(options->limits.ttft, 2);
  EXPECT_FALSE(options->limits.itl.has_value());
  EXPECT_EQ(options->trace->rows.size(), 1u);
}

TEST(BenchOptionsTest, RefusesByNameValueAndLimit) {
  EXPECT_EQ(Refusal({}), "--target: missing");
  EXPECT_EQ(Refusal(With(kClosed, "--concurrency=0")),
            "--concurrency is 0; must be from 1 to 10000");
  EXPECT_EQ(Refusal(With(kClosed, "--rate=0")), "--rate is 0; must be above 0 and at most 1000000");
  EXPECT_EQ(Refusal(With(kClosed, "--rate=nan")),
            "--rate is nan; must be above 0 and at most 1000000");
  EXPECT_EQ(Refusal(With(kClosed, "--rate=2")), "--concurrency and --rate: give one of them");
  EXPECT_EQ(Refusal(With(kClosed, "--speed=2")), "--speed is 2; needs the times of --trace");
  EXPECT_EQ(Refusal(With(kClosed, "--trace=/no/such")), "/no/such: cannot be read");
  EXPECT_EQ(Refusal(With(kClosed, "--prompt-tokens=0")),
            "--prompt-tokens is 0; must be N or A..B from 1 to 1000000");
  EXPECT_EQ(Refusal(With(kClosed, "--unknown=1")), "unknown flag: --unknown");
}

TEST(BenchOptionsTest, LimitsAreTimes) {
  EXPECT_DOUBLE_EQ(*ParseLimit("f", "250ms"), 0.25);
  EXPECT_DOUBLE_EQ(*ParseLimit("f", "250"), 0.25);
  EXPECT_DOUBLE_EQ(*ParseLimit("f", "0.25s"), 0.25);
  for (const char* text : {"", "ms", "0", "-1s", "nan", "inf", "1m", "1 s", "1e400s"}) {
    EXPECT_FALSE(ParseLimit("f", text).ok()) << text;
  }
  EXPECT_EQ(ParseLimit("ttft-limit", "1m").status().message(),
            "--ttft-limit is 1m; must be a time above 0, as in 250ms or 0.25s");
}

}  // namespace
}  // namespace baton::client
