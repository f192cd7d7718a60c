#include "benchmarks/step_bench_io.h"

#include <string>

#include "gtest/gtest.h"

namespace baton::benchmarks {
namespace {

TEST(StepBenchIoTest, ARequestNamesItsSequences) {
  const auto request = ParseStepRequest(
      R"({"sequences": [{"count": 2, "prompt": 7, "filled": true, "max_tokens": 3},)"
      R"( {"choices": 4, "temperature": 0.5, "top_k": 40, "top_p": 0.9, "arrival": 1.5}], )"
      R"("step_tokens": 64, "max_running": 8, "group": 4})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->options.step_tokens, 64u);
  EXPECT_EQ(request->options.max_running, 8u);
  EXPECT_EQ(request->options.group, 4u);
  EXPECT_EQ(request->sequences.back().arrival, 1.5);
  ASSERT_EQ(request->sequences.size(), 3u);
  EXPECT_EQ(request->sequences[1].prompt, 7u);
  EXPECT_TRUE(request->sequences[1].filled);
  EXPECT_EQ(request->sequences[1].max_tokens, 3u);
  EXPECT_EQ(request->sequences[2].choices, 4u);
  EXPECT_FALSE(request->sequences[2].filled);
  EXPECT_FLOAT_EQ(request->sequences[2].sampling.temperature, 0.5f);
  EXPECT_EQ(request->sequences[2].sampling.top_k, 40);
  EXPECT_FLOAT_EQ(request->sequences[2].sampling.top_p, 0.9f);
}

TEST(StepBenchIoTest, WhatIsNotARequestIsAnError) {
  for (const char* line :
       {"", "[]", R"({"sequence": []})", R"({"sequences": 1})", R"({"sequences": [1]})",
        R"({"sequences": [{"prompt": -1}]})", R"({"sequences": [{"prompts": 1}]})",
        R"({"sequences": [{"count": 2000}]})", R"({"step_tokens": "1"})"}) {
    EXPECT_FALSE(ParseStepRequest(line).ok()) << line;
  }
}

TEST(StepBenchIoTest, AnAnswerIsOneLineOfJson) {
  Timeline timeline;
  timeline.steps = {{0.5, 2}};
  timeline.sequences = {{0.25, 0.5}};
  timeline.most_blocks = 3;
  timeline.work.macs["Q4_1"] = 4;
  timeline.work.bytes = 5;
  EXPECT_EQ(ToLine(timeline),
            R"({"bytes":5,"macs":{"Q4_1":4},"most_blocks":3,"sequences":[[0.25,0.5]],)"
            R"("steps":[[0.5,2]]})");
  EXPECT_EQ(ToLine(absl::InternalError("broken")), R"({"error":"INTERNAL: broken"})");
}

}  // namespace
}  // namespace baton::benchmarks
