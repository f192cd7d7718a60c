#include "common/log.h"

#include <limits>
#include <stdexcept>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace baton {
namespace {

class FixedClock : public WallClock {
 public:
  std::chrono::nanoseconds SinceEpoch() const override {
    return std::chrono::nanoseconds(1'700'000'000'123'456'789);
  }
};

struct Fixture {
  FixedClock clock;
  std::string lines;
  Logger logger{[this] {
    Logger::Options options;
    options.component = "router";
    options.clock = &clock;
    options.sink = [this](std::string_view line) { lines += line; };
    return options;
  }()};
};

TEST(LogTest, OneLineOfJsonWithTimeLevelMessageAndFields) {
  Fixture f;
  f.logger.Info("worker lost", {{"request", std::string("ab-1.0")},
                                {"silent_ms", 4000},
                                {"ratio", 0.5},
                                {"retry", true},
                                {"big", std::numeric_limits<uint64_t>::max()}});
  EXPECT_EQ(f.lines,
            "{\"time\":\"2023-11-14T22:13:20.123456Z\",\"level\":\"info\",\"component\":\"router\","
            "\"message\":\"worker lost\",\"request\":\"ab-1.0\",\"silent_ms\":4000,\"ratio\":0.5,"
            "\"retry\":true,\"big\":18446744073709551615}\n");
}

TEST(LogTest, AnyBytesStayOneLineOfValidJson) {
  Fixture f;
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte += static_cast<char>(i);
  f.logger.Error(every_byte, {{every_byte, every_byte},
                              {"nan", std::numeric_limits<double>::quiet_NaN()},
                              {"inf", -std::numeric_limits<double>::infinity()}});
  EXPECT_EQ(f.lines.find('\n'), f.lines.size() - 1);
  const auto parsed = nlohmann::json::parse(f.lines, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(parsed.is_discarded()) << f.lines;
  EXPECT_EQ(parsed["level"], "error");
  EXPECT_EQ(parsed["inf"], "-inf");
}

TEST(LogTest, LevelsBelowTheMinimumAreSilent) {
  Fixture f;
  f.logger.Debug("not shown");
  EXPECT_EQ(f.lines, "");
  f.logger.Warning("shown");
  EXPECT_NE(f.lines.find("\"level\":\"warning\""), std::string::npos);
}

TEST(LogTest, ASinkThatThrowsLosesTheLineAndNothingElse) {
  Logger::Options options;
  options.sink = [](std::string_view) { throw std::runtime_error("disk full"); };
  Logger(options).Error("lost");
  Logger::Silent().Error("silent");
}

}  // namespace
}  // namespace baton
