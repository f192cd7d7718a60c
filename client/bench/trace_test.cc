#include "client/bench/trace.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace baton::client {
namespace {

std::string Refusal(const std::string& text) {
  const auto trace = ParseTrace("t", text);
  EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(trace.status().message());
}

TEST(TraceTest, ReadsCsvWithTimes) {
  const auto trace =
      ParseTrace("t", "arrival_us,input_tokens,output_tokens\n0,4808,10\n52000,3180,8\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(trace->timed);
  ASSERT_EQ(trace->rows.size(), 2u);
  EXPECT_EQ(trace->rows[1].at_seconds, 0.052);
  EXPECT_EQ(trace->rows[1].prompt_tokens, 3180u);
  EXPECT_EQ(trace->rows[1].output_tokens, 8u);
}

TEST(TraceTest, ReadsCsvWithoutTimesAndInAnyOrderOfColumns) {
  const auto trace = ParseTrace("t", "output_tokens,other,input_tokens\n285,x,42\n\n19,y,82");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_FALSE(trace->timed);
  ASSERT_EQ(trace->rows.size(), 2u);
  EXPECT_EQ(trace->rows[0].prompt_tokens, 42u);
  EXPECT_EQ(trace->rows[0].output_tokens, 285u);
}

TEST(TraceTest, ReadsJsonLinesSortedByTimeAndSkipsWhatIsEmpty) {
  const auto trace =
      ParseTrace("t", R"({"timestamp":3000,"input_length":5,"output_length":6,"hash_ids":[0,1]}
{"timestamp":0,"input_length":7331,"output_length":0,"ttfb_ms":385.8}
{"timestamp":56.5,"input_length":93,"output_length":2}
{"timestamp":56.5,"input_length":94,"output_length":2}
)");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(trace->timed);
  EXPECT_EQ(trace->skipped, 1u);
  ASSERT_EQ(trace->rows.size(), 3u);
  EXPECT_EQ(trace->rows[0].at_seconds, 0.0565);
  EXPECT_EQ(trace->rows[0].prompt_tokens, 93u);
  EXPECT_EQ(trace->rows[1].prompt_tokens, 94u);
  EXPECT_EQ(trace->rows[2].at_seconds, 3.0);
}

TEST(TraceTest, RefusesWithTheLine) {
  EXPECT_EQ(Refusal("a,b\n1,2\n"),
            "t: line 1: expected a header with input_tokens and output_tokens");
  EXPECT_EQ(Refusal("input_tokens,output_tokens\n1,2\n1,x\n"),
            "t: line 3: expected 2 numbers that are not negative");
  for (const char* row : {"1", "1,2,3", "-1,2", "1,", "nan,1", "inf,1", "1e30,1", "1 ,2"}) {
    Refusal(std::string("input_tokens,output_tokens\n") + row + "\n");
  }
  EXPECT_EQ(Refusal("{\"timestamp\":1,\"input_length\":1}\n"),
            "t: line 1: expected an object with timestamp, input_length and output_length");
  Refusal(R"({"timestamp":"1","input_length":1,"output_length":1})");
  Refusal(R"({"timestamp":1,"input_length":-1,"output_length":1})");
  Refusal("{\"timestamp\":1,\"input_length\":1,\"output_length\":1}\n[]\n");
  Refusal("{");
}

TEST(TraceTest, RefusesATraceWithoutARequest) {
  Refusal("");
  EXPECT_EQ(Refusal("input_tokens,output_tokens\n0,5\n"), "t: has no request");
  EXPECT_EQ(ReadTrace("/does/not/exist").status().message(), "/does/not/exist: cannot be read");
}

// Environment BATON_SHARED: row counts as its README lists them.
TEST(TraceTest, ReadsTheTracesThatPeopleShare) {
  const char* const shared = std::getenv("BATON_SHARED");
  if (shared == nullptr) {
    const char* const ci = std::getenv("CI");
    ASSERT_TRUE(ci == nullptr || std::string(ci) != "true") << "BATON_SHARED is not set";
    GTEST_SKIP() << "BATON_SHARED is not set";
  }
  const struct {
    const char* file;
    size_t rows, skipped;
    bool timed;
  } cases[] = {{"azure_llm_2023_code.csv", 8819, 0, true},
               {"azure_llm_2023_conv.csv", 19366, 0, true},
               {"mooncake_conversation.jsonl", 12031, 0, true},
               {"mooncake_synthetic.jsonl", 3993, 0, true},
               {"rtpllm_pd_online.jsonl", 6042, 2290, true},
               {"sharegpt_lengths.csv", 20000, 0, false},
               {"arxiv_summarization_lengths.csv", 10000, 0, false}};
  for (const auto& one : cases) {
    const auto trace = ReadTrace(std::string(shared) + "/traces/" + one.file);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->rows.size(), one.rows) << one.file;
    EXPECT_EQ(trace->skipped, one.skipped) << one.file;
    EXPECT_EQ(trace->timed, one.timed) << one.file;
  }
}

}  // namespace
}  // namespace baton::client
