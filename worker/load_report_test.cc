#include "worker/load_report.h"

#include <chrono>
#include <string>
#include <vector>

#include "common/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::worker {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class LoadReportTest : public ::testing::Test {
 protected:
  double Seconds(const std::string& stage) {
    return metrics_.AddGauge("baton_load_seconds", "", {"stage"}).With({stage}).Value();
  }

  std::vector<std::string> lines_;
  MetricsRegistry metrics_;
  const Logger log_{Options()};

 private:
  Logger::Options Options() {
    Logger::Options options;
    options.sink = [this](std::string_view line) { lines_.emplace_back(line); };
    return options;
  }
};

TEST_F(LoadReportTest, SaysOnceASecondHowMuchIsPacked) {
  const Time begin = SteadyNow();
  LoadReport report(metrics_, log_, "m.gguf", begin);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], HasSubstr("m.gguf"));
  for (int tenth = 0; tenth < 26; ++tenth) {
    report.Packed(10 * tenth, 260, begin + tenth * milliseconds(100));
  }
  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_THAT(lines_[1], HasSubstr("\"packed_bytes\":100,\"all_bytes\":260"));
  EXPECT_THAT(lines_[2], HasSubstr("\"packed_bytes\":200,"));
}

TEST_F(LoadReportTest, StagesAreMetrics) {
  const Time begin = SteadyNow();
  LoadReport report(metrics_, log_, "m.gguf", begin);
  report.StageTook("pack", 2.5);
  report.StageEnds("vocabulary");
  report.Done();
  EXPECT_EQ(Seconds("pack"), 2.5);
  EXPECT_GT(Seconds("vocabulary"), 0);
  EXPECT_LE(Seconds("vocabulary"), ToSeconds(SteadyNow() - begin));
  EXPECT_THAT(lines_.back(), HasSubstr("loaded the model"));
}

TEST_F(LoadReportTest, MemoryThatDoesNotComeIsAnErrorUnlessTheKernelIsTooOld) {
  ReportKvMemory(metrics_, log_, absl::OkStatus(), {4096, 0.5});
  EXPECT_EQ(Seconds("kv"), 0.5);
  ReportKvMemory(metrics_, log_, absl::UnimplementedError("old"), {4096, 0.1});
  EXPECT_THAT(lines_.back(), HasSubstr("\"level\":\"info\""));
  ReportKvMemory(metrics_, log_, absl::ResourceExhaustedError("no more"), {4096, 0.1});
  EXPECT_THAT(lines_.back(), HasSubstr("\"level\":\"error\""));
  EXPECT_THAT(lines_.back(), HasSubstr("no more"));
  EXPECT_EQ(Seconds("kv"), 0.5);
}

}  // namespace
}  // namespace baton::worker
