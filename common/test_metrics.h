// For tests: what a registry says of one metric.
#ifndef BATON_COMMON_TEST_METRICS_H_
#define BATON_COMMON_TEST_METRICS_H_

#include <string>
#include <string_view>

#include "common/check.h"
#include "common/metrics.h"

namespace baton {

// Of a counter or gauge that is declared, by its name with labels as in the text format.
inline double MetricValue(const MetricsRegistry& registry, std::string_view name) {
  const std::string text = "\n" + registry.Scrape();
  const size_t at = text.find("\n" + std::string(name) + " ");
  BATON_CHECK(at != std::string::npos);
  return std::stod(text.substr(at + name.size() + 2));
}

}  // namespace baton

#endif  // BATON_COMMON_TEST_METRICS_H_
