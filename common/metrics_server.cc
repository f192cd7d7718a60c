#include "common/metrics_server.h"

#include <exception>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "prometheus/exposer.h"
#include "prometheus/registry.h"

namespace baton {

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    MetricsRegistry& registry) {
  // The library reports a failed bind by an exception: it ends here.
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(address, /*num_threads=*/1);
    exposer->RegisterCollectable(registry.impl());
    const std::vector<int> ports = exposer->GetListeningPorts();
    if (ports.empty()) return absl::UnavailableError("metrics: no port bound at " + address);
    return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(exposer), ports.front()));
  } catch (const std::exception& error) {
    return absl::UnavailableError("metrics: cannot listen at " + address + ": " + error.what());
  }
}

MetricsServer::MetricsServer(std::unique_ptr<prometheus::Exposer> exposer, int port)
    : exposer_(std::move(exposer)), port_(port) {}

MetricsServer::~MetricsServer() = default;

}  // namespace baton
