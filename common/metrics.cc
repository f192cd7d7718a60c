#include "common/metrics.h"

#include <tuple>
#include <utility>

#include "common/check.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace baton {
namespace {

std::map<std::string, std::string> MakeLabels(const std::vector<std::string>& names,
                                              const std::vector<std::string>& values) {
  std::map<std::string, std::string> labels;
  for (size_t i = 0; i < names.size(); ++i) labels[names[i]] = values[i];
  return labels;
}

// `Args`: what the prometheus metric is constructed from beside its labels.
template <typename Metric, typename Impl, typename... Args>
class FamilyOf : public MetricFamily<Metric> {
 public:
  FamilyOf(prometheus::Family<Impl>& family, std::vector<std::string> label_names, Args... args)
      : MetricFamily<Metric>(label_names.size()),
        family_(family),
        label_names_(std::move(label_names)),
        args_(std::move(args)...) {}

 protected:
  Metric Create(const std::vector<std::string>& label_values) override {
    const auto labels = MakeLabels(label_names_, label_values);
    return std::apply([&](const auto&... args) { return Metric(family_.Add(labels, args...)); },
                      args_);
  }

 private:
  prometheus::Family<Impl>& family_;
  const std::vector<std::string> label_names_;
  const std::tuple<Args...> args_;
};

using CounterFamilyOf = FamilyOf<Counter, prometheus::Counter>;
using GaugeFamilyOf = FamilyOf<Gauge, prometheus::Gauge>;
using HistogramFamilyOf = FamilyOf<Histogram, prometheus::Histogram, std::vector<double>>;

}  // namespace

void Counter::Increment(double by) { impl_->Increment(by); }
double Counter::Value() const { return impl_->Value(); }

void Gauge::Set(double value) { impl_->Set(value); }
void Gauge::Add(double delta) { impl_->Increment(delta); }
double Gauge::Value() const { return impl_->Value(); }

void Histogram::Observe(double value) { impl_->Observe(value); }
uint64_t Histogram::Count() const { return impl_->Collect().histogram.sample_count; }
double Histogram::Sum() const { return impl_->Collect().histogram.sample_sum; }

template <typename Metric>
Metric MetricFamily<Metric>::With(const std::vector<std::string>& label_values) {
  BATON_CHECK(label_values.size() == num_labels_);
  MutexLock lock(mutex_);
  auto found = children_.find(label_values);
  if (found != children_.end()) return found->second;
  if (children_.size() >= kMaxChildren) {
    const std::vector<std::string> other(num_labels_, "other");
    found = children_.find(other);
    if (found == children_.end()) found = children_.emplace(other, Create(other)).first;
    return found->second;
  }
  return children_.emplace(label_values, Create(label_values)).first->second;
}
template class MetricFamily<Counter>;
template class MetricFamily<Gauge>;
template class MetricFamily<Histogram>;

struct MetricsRegistry::Declaration {
  MetricInfo info;
  std::unique_ptr<CounterFamily> counter;
  std::unique_ptr<GaugeFamily> gauge;
  std::unique_ptr<HistogramFamily> histogram;
};

MetricsRegistry::MetricsRegistry() : impl_(std::make_shared<prometheus::Registry>()) {}
MetricsRegistry::~MetricsRegistry() = default;

MetricsRegistry::Declaration& MetricsRegistry::Declare(MetricInfo info) {
  std::unique_ptr<Declaration>& declaration = declared_[info.name];
  if (declaration == nullptr) {
    declaration = std::make_unique<Declaration>();
    declaration->info = std::move(info);
  } else {
    BATON_CHECK(declaration->info.type == info.type);
    BATON_CHECK(declaration->info.label_names == info.label_names);
  }
  return *declaration;
}

CounterFamily& MetricsRegistry::AddCounter(std::string_view name, std::string_view help,
                                           std::vector<std::string> label_names) {
  MutexLock lock(mutex_);
  Declaration& made = Declare({std::string(name), "counter", std::string(help), label_names});
  if (made.counter == nullptr) {
    auto& family =
        prometheus::BuildCounter().Name(made.info.name).Help(made.info.help).Register(*impl_);
    made.counter = std::make_unique<CounterFamilyOf>(family, std::move(label_names));
  }
  return *made.counter;
}

GaugeFamily& MetricsRegistry::AddGauge(std::string_view name, std::string_view help,
                                       std::vector<std::string> label_names) {
  MutexLock lock(mutex_);
  Declaration& made = Declare({std::string(name), "gauge", std::string(help), label_names});
  if (made.gauge == nullptr) {
    auto& family =
        prometheus::BuildGauge().Name(made.info.name).Help(made.info.help).Register(*impl_);
    made.gauge = std::make_unique<GaugeFamilyOf>(family, std::move(label_names));
  }
  return *made.gauge;
}

HistogramFamily& MetricsRegistry::AddHistogram(std::string_view name, std::string_view help,
                                               std::vector<double> bounds,
                                               std::vector<std::string> label_names) {
  MutexLock lock(mutex_);
  Declaration& made = Declare({std::string(name), "histogram", std::string(help), label_names});
  if (made.histogram == nullptr) {
    auto& family =
        prometheus::BuildHistogram().Name(made.info.name).Help(made.info.help).Register(*impl_);
    made.histogram =
        std::make_unique<HistogramFamilyOf>(family, std::move(label_names), std::move(bounds));
  }
  return *made.histogram;
}

std::vector<MetricInfo> MetricsRegistry::Declared() const {
  MutexLock lock(mutex_);
  std::vector<MetricInfo> all;
  for (const auto& [name, declaration] : declared_) all.push_back(declaration->info);
  return all;
}

std::string MetricsRegistry::Scrape() const {
  return prometheus::TextSerializer().Serialize(impl_->Collect());
}

std::vector<double> LatencyBounds() {
  return {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
          0.2,    0.5,    1,      2,     5,     10,    20,   60,   120};
}

}  // namespace baton
