#include "client/bench/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace baton::client {
namespace {

TEST(PercentileTest, IsTheNearestRank) {
  std::vector<float> hundred;
  for (int i = 1; i <= 100; ++i) hundred.push_back(static_cast<float>(i));
  EXPECT_EQ(Percentile(hundred, 50), 50);
  EXPECT_EQ(Percentile(hundred, 90), 90);
  EXPECT_EQ(Percentile(hundred, 99), 99);
  EXPECT_EQ(Percentile(hundred, 100), 100);
  EXPECT_EQ(Percentile(hundred, 0.1), 1);
  EXPECT_EQ(Percentile({1, 2, 3, 4}, 50), 2);
  EXPECT_EQ(Percentile({1, 2, 3, 4}, 51), 3);
  EXPECT_EQ(Percentile({7}, 99), 7);
}

TEST(SummaryTest, NamesCountMeanAndPercentiles) {
  const Summary summary = Summarize({1, 2, 3, 10});
  EXPECT_EQ(summary.count, 4u);
  EXPECT_EQ(summary.mean, 4);
  EXPECT_EQ(summary.p50, 2);
  EXPECT_EQ(summary.p90, 10);
  EXPECT_EQ(summary.max, 10);
  EXPECT_EQ(Summarize({}).count, 0u);
}

TEST(HistogramTest, BucketsTouchAndCountEverything) {
  std::vector<float> values;
  for (int i = 0; i < 1000; ++i) values.push_back(0.001F * static_cast<float>(1 + i * i));
  std::sort(values.begin(), values.end());
  const std::vector<Bucket> histogram = MakeHistogram(values, 8);
  ASSERT_EQ(histogram.size(), 8u);
  size_t total = 0;
  for (size_t i = 0; i < histogram.size(); ++i) {
    const Bucket& bucket = histogram[i];
    const bool last = i + 1 == histogram.size();
    if (!last) {
      EXPECT_EQ(bucket.to, histogram[i + 1].from);
    }
    EXPECT_EQ(bucket.count,
              static_cast<size_t>(std::count_if(values.begin(), values.end(), [&](float v) {
                return v >= bucket.from && (v < bucket.to || (last && v <= bucket.to));
              })));
    total += bucket.count;
  }
  EXPECT_EQ(total, values.size());
  EXPECT_EQ(histogram.front().from, values.front());
  EXPECT_EQ(histogram.back().to, values.back());
}

TEST(HistogramTest, EqualValuesAreOneBucketAndNoneAreNone) {
  const std::vector<Bucket> one = MakeHistogram({2, 2, 2}, 8);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].count, 3u);
  EXPECT_TRUE(MakeHistogram({}, 8).empty());
}

TEST(HistogramTest, ZeroAndNegativeValuesHaveABucket) {
  const std::vector<Bucket> histogram = MakeHistogram({-1, 0, 1}, 2);
  ASSERT_EQ(histogram.size(), 2u);
  EXPECT_EQ(histogram[0].count, 2u);
  EXPECT_EQ(histogram[1].count, 1u);
}

TEST(HistogramTest, DrawsABarForEveryBucketWithAValue) {
  const std::string drawn =
      DrawHistogram({{0.001, 0.002, 1}, {0.002, 0.004, 0}, {0.004, 0.008, 400}}, 4);
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\n'), 3);
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '#'), 1 + 0 + 4);
  EXPECT_NE(drawn.find("1.00 ..       2.00 ms        1 #\n"), std::string::npos) << drawn;
}

}  // namespace
}  // namespace baton::client
