#include "common/metrics.h"

#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace baton {
namespace {

bool Has(const std::string& text, const std::string& line) {
  return text.find(line + "\n") != std::string::npos;
}

TEST(MetricsTest, ScrapeShowsWhatMoved) {
  MetricsRegistry registry;
  Counter tokens = registry.AddCounter("baton_tokens_total", "Tokens.").Get();
  GaugeFamily& blocks = registry.AddGauge("baton_kv_blocks", "Blocks by state.", {"state"});
  Histogram latency = registry.AddHistogram("baton_wait_seconds", "Wait.", {0.1, 1}).Get();
  tokens.Increment();
  tokens.Increment(4);
  blocks.With({"free"}).Set(7);
  blocks.With({"live"}).Add(2);
  latency.Observe(0.05);
  latency.Observe(5);

  const std::string text = registry.Scrape();
  EXPECT_TRUE(Has(text, "baton_tokens_total 5")) << text;
  EXPECT_TRUE(Has(text, "baton_kv_blocks{state=\"free\"} 7")) << text;
  EXPECT_TRUE(Has(text, "baton_kv_blocks{state=\"live\"} 2")) << text;
  EXPECT_TRUE(Has(text, "baton_wait_seconds_bucket{le=\"0.1\"} 1")) << text;
  EXPECT_TRUE(Has(text, "baton_wait_seconds_count 2")) << text;
  EXPECT_EQ(tokens.Value(), 5);
  EXPECT_EQ(latency.Count(), 2u);
  EXPECT_EQ(latency.Sum(), 5.05);
}

TEST(MetricsTest, TheSameDeclarationGivesTheSameMetric) {
  MetricsRegistry registry;
  registry.AddCounter("baton_a_total", "A.").Get().Increment();
  registry.AddCounter("baton_a_total", "A.").Get().Increment();
  EXPECT_EQ(registry.AddCounter("baton_a_total", "A.").Get().Value(), 2);
}

TEST(MetricsDeathTest, AnotherTypeOrOtherLabelsOfTheSameNameAreOurBug) {
  MetricsRegistry registry;
  registry.AddCounter("baton_a_total", "A.");
  EXPECT_DEATH(registry.AddGauge("baton_a_total", "A."), "broken invariant");
  EXPECT_DEATH(registry.AddCounter("baton_a_total", "A.", {"x"}), "broken invariant");
}

TEST(MetricsTest, ListsWhatWasDeclaredByName) {
  MetricsRegistry registry;
  registry.AddHistogram("baton_z_seconds", "Z.", {1});
  registry.AddCounter("baton_a_total", "A.", {"cause"});
  const std::vector<MetricInfo> declared = registry.Declared();
  ASSERT_EQ(declared.size(), 2u);
  EXPECT_EQ(declared[0].name, "baton_a_total");
  EXPECT_EQ(declared[0].type, "counter");
  EXPECT_EQ(declared[0].help, "A.");
  EXPECT_EQ(declared[0].label_names, std::vector<std::string>{"cause"});
  EXPECT_EQ(declared[1].name, "baton_z_seconds");
}

TEST(MetricsTest, LabelValuesAreBounded) {
  MetricsRegistry registry;
  CounterFamily& family = registry.AddCounter("baton_a_total", "A.", {"peer"});
  const size_t bound = CounterFamily::kMaxChildren;
  for (size_t i = 0; i < bound + 10; ++i) family.With({std::to_string(i)}).Increment();
  EXPECT_EQ(family.With({"0"}).Value(), 1);
  EXPECT_EQ(family.With({"other"}).Value(), 10);
}

TEST(MetricsTest, ThreadsMayMoveAndScrapeAtOnce) {
  MetricsRegistry registry;
  CounterFamily& family = registry.AddCounter("baton_a_total", "A.", {"t"});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&family, &registry, t] {
      for (int i = 0; i < 200; ++i) family.With({std::to_string(t % 2)}).Increment();
      EXPECT_FALSE(registry.Scrape().empty());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(family.With({"0"}).Value() + family.With({"1"}).Value(), 800);
}

}  // namespace
}  // namespace baton
