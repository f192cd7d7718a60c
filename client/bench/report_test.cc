#include "client/bench/report.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace baton::client {
namespace {

Time At(int ms) { return Time() + std::chrono::milliseconds(ms); }

RequestRecord Ok(int scheduled, int sent, int first, int ended, std::vector<float> gaps) {
  RequestRecord record;
  record.scheduled = At(scheduled);
  record.sent = At(sent);
  record.first_token = At(first);
  record.ended = At(ended);
  record.prompt_tokens = 100;
  record.tokens = record.wanted_tokens = static_cast<uint32_t>(gaps.size()) + 1;
  record.gaps = std::move(gaps);
  return record;
}

RequestRecord Failed(const std::string& code, int scheduled, int ended) {
  RequestRecord record;
  record.scheduled = record.sent = At(scheduled);
  record.ended = At(ended);
  record.prompt_tokens = 100;
  record.error = code;
  return record;
}

TEST(ReportTest, LatenciesCountFromTheScheduledStart) {
  const Report report = MakeReport({Ok(0, 400, 500, 1000, {0.25F, 0.25F})}, 1, {});
  EXPECT_FLOAT_EQ(report.ttft.summary.max, 0.5);
  EXPECT_FLOAT_EQ(report.end_to_end.summary.max, 1.0);
  EXPECT_FLOAT_EQ(report.send_delay.summary.max, 0.4);
  EXPECT_FLOAT_EQ(report.itl.summary.p50, 0.25);
  EXPECT_EQ(report.itl.summary.count, 2u);
}

TEST(ReportTest, ErrorsAreCountedByCodeAndTakeNoPartInLatencies) {
  RequestRecord half = Ok(0, 0, 100, 200, {0.1F});
  half.error = "UNAVAILABLE";
  const Report report =
      MakeReport({Ok(0, 0, 100, 2000, {0.1F}), half, Failed("RESOURCE_EXHAUSTED", 0, 1),
                  Failed("RESOURCE_EXHAUSTED", 5, 6)},
                 5, {});
  EXPECT_EQ(report.planned, 5u);
  EXPECT_EQ(report.ended, 4u);
  EXPECT_EQ(report.ok, 1u);
  EXPECT_EQ(report.errors.at("RESOURCE_EXHAUSTED"), 2u);
  EXPECT_EQ(report.errors.at("UNAVAILABLE"), 1u);
  EXPECT_EQ(report.ttft.summary.count, 1u);
  EXPECT_EQ(report.itl.summary.count, 1u);
  EXPECT_EQ(report.prompt_tokens, 200u);
  EXPECT_EQ(report.output_tokens, 4u);
  EXPECT_EQ(report.elapsed_seconds, 2);
}

TEST(ReportTest, GoodputNeedsBothLimitsAndSuccess) {
  const std::vector<RequestRecord> records = {
      Ok(0, 0, 100, 1000, {0.01F, 0.03F}), Ok(0, 0, 101, 1000, {0.01F}),
      Ok(0, 0, 100, 1000, {0.01F, 0.04F}), Ok(0, 0, 50, 60, {}), Failed("INTERNAL", 0, 10)};
  Limits limits;
  EXPECT_EQ(MakeReport(records, 5, limits).good, 4u);
  limits.ttft = 0.1;
  EXPECT_EQ(MakeReport(records, 5, limits).good, 3u);
  limits.itl = 0.02;
  const Report report = MakeReport(records, 5, limits);
  EXPECT_EQ(report.good, 2u);
  const nlohmann::json json = ToJson(report);
  EXPECT_DOUBLE_EQ(json["goodput"]["share"], 0.4);
  EXPECT_DOUBLE_EQ(json["goodput"]["requests_per_s"], 2.0);
  EXPECT_DOUBLE_EQ(json["goodput"]["itl_limit_s"], 0.02);
}

TEST(ReportTest, TextAndJsonSayTheSame) {
  const Report report =
      MakeReport({Ok(0, 0, 100, 1000, {0.01F}), Failed("INTERNAL", 0, 10)}, 2, {});
  const std::string text = ToText(report);
  EXPECT_NE(text.find("2 of 2 requests in 1.00 s, 1 ok (1.00/s), 1 INTERNAL"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("goodput"), std::string::npos);
  const nlohmann::json json = ToJson(report);
  EXPECT_EQ(json["requests"]["failed"], 1);
  EXPECT_EQ(json["errors"]["INTERNAL"], 1);
  EXPECT_EQ(json["ttft_s"]["histogram"].size(), 1u);
  EXPECT_TRUE(json["goodput"]["ttft_limit_s"].is_null());
}

TEST(ReportTest, NoRecordAtAllIsZeroEverywhere) {
  const Report report = MakeReport({}, 3, {});
  EXPECT_EQ(ToJson(report)["output_tokens_per_s"], 0.0);
  EXPECT_NE(ToText(report).find("0 of 3 requests"), std::string::npos);
}

}  // namespace
}  // namespace baton::client
