// Serves GET /metrics over HTTP from threads of its own.
#ifndef BATON_COMMON_METRICS_SERVER_H_
#define BATON_COMMON_METRICS_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics.h"

namespace prometheus {
class Exposer;
}  // namespace prometheus

namespace baton {

class MetricsServer {
 public:
  // `address` is "HOST:PORT"; port 0 takes a free one. UNAVAILABLE when it cannot be bound.
  // `registry` must outlive the server.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address,
                                                              MetricsRegistry& registry);
  ~MetricsServer();  // takes about a second
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  int port() const { return port_; }

 private:
  MetricsServer(std::unique_ptr<prometheus::Exposer> exposer, int port);

  std::unique_ptr<prometheus::Exposer> exposer_;
  int port_;
};

}  // namespace baton

#endif  // BATON_COMMON_METRICS_SERVER_H_
