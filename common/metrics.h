// Metrics by name, over prometheus-cpp. A process has one MetricsRegistry, made in main and passed
// down; each metric is declared beside the code that moves it. Names start with `baton_`, units are
// base units (seconds, bytes), labels are bounded.
//
//   struct KvMetrics {
//     explicit KvMetrics(MetricsRegistry& registry)
//         : blocks(registry.AddGauge("baton_kv_blocks", "KV blocks by state.", {"state"})) {}
//     GaugeFamily& blocks;   // blocks.With({"free"}).Set(n)
//   };
#ifndef BATON_COMMON_METRICS_H_
#define BATON_COMMON_METRICS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/mutex.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
}  // namespace prometheus

namespace baton {

// Handles: cheap to copy, thread-safe, valid as long as the registry.
class Counter {
 public:
  explicit Counter(prometheus::Counter& impl) : impl_(&impl) {}
  void Increment(double by = 1);  // by >= 0
  double Value() const;

 private:
  prometheus::Counter* impl_;
};

class Gauge {
 public:
  explicit Gauge(prometheus::Gauge& impl) : impl_(&impl) {}
  void Set(double value);
  void Add(double delta);
  double Value() const;

 private:
  prometheus::Gauge* impl_;
};

class Histogram {
 public:
  explicit Histogram(prometheus::Histogram& impl) : impl_(&impl) {}
  void Observe(double value);
  uint64_t Count() const;
  double Sum() const;

 private:
  prometheus::Histogram* impl_;
};

// All the children of one name. Thread-safe.
template <typename Metric>
class MetricFamily {
 public:
  // Beyond this many children further label values share one child labelled "other".
  static constexpr size_t kMaxChildren = 256;

  virtual ~MetricFamily() = default;

  // One value per label name, in their order. Creates the child at first use; keep the handle on
  // hot paths.
  Metric With(const std::vector<std::string>& label_values);
  // The child of a family without labels.
  Metric Get() { return With({}); }

 protected:
  explicit MetricFamily(size_t num_labels) : num_labels_(num_labels) {}
  virtual Metric Create(const std::vector<std::string>& label_values) = 0;

 private:
  const size_t num_labels_;
  Mutex mutex_;
  std::map<std::vector<std::string>, Metric> children_ BATON_GUARDED_BY(mutex_);
};

using CounterFamily = MetricFamily<Counter>;
using GaugeFamily = MetricFamily<Gauge>;
using HistogramFamily = MetricFamily<Histogram>;

struct MetricInfo {
  std::string name;
  std::string type;  // "counter", "gauge" or "histogram"
  std::string help;
  std::vector<std::string> label_names;
};

// Thread-safe. A name is declared once; declaring it again with the same type and labels gives the
// same family (two components may share a metric), anything else is a broken invariant.
class MetricsRegistry {
 public:
  MetricsRegistry();
  ~MetricsRegistry();
  MetricsRegistry(const MetricsRegistry&) = delete;
  MetricsRegistry& operator=(const MetricsRegistry&) = delete;

  CounterFamily& AddCounter(std::string_view name, std::string_view help,
                            std::vector<std::string> label_names = {});
  GaugeFamily& AddGauge(std::string_view name, std::string_view help,
                        std::vector<std::string> label_names = {});
  // `bounds`: ascending upper bounds of the buckets; +Inf is added.
  HistogramFamily& AddHistogram(std::string_view name, std::string_view help,
                                std::vector<double> bounds,
                                std::vector<std::string> label_names = {});

  // What was declared, by name.
  std::vector<MetricInfo> Declared() const;
  // The Prometheus text format.
  std::string Scrape() const;

  // For MetricsServer.
  const std::shared_ptr<prometheus::Registry>& impl() const { return impl_; }

 private:
  struct Declaration;
  Declaration& Declare(MetricInfo info) BATON_REQUIRES(mutex_);

  const std::shared_ptr<prometheus::Registry> impl_;
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<Declaration>, std::less<>> declared_
      BATON_GUARDED_BY(mutex_);
};

// Bounds in seconds for latencies from 100 us to 2 min.
std::vector<double> LatencyBounds();

}  // namespace baton

#endif  // BATON_COMMON_METRICS_H_
