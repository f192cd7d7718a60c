// Metrics of KV transfers, one instance per worker process, shared by its source and sink sides.
#ifndef BATON_KVTRANSFER_TRANSFER_METRICS_H_
#define BATON_KVTRANSFER_TRANSFER_METRICS_H_

#include "common/metrics.h"

namespace baton::kvtransfer {

struct TransferMetrics {
  explicit TransferMetrics(MetricsRegistry& registry);

  Gauge in_flight;            // from Granted to the end, on either side
  Histogram handoff_seconds;  // at the source: last layer shipped until Committed
  Counter handoff_bytes;      // at the source: acknowledged bytes of blocks
  CounterFamily& failures;    // {cause}: granted transfers that did not commit, Release excepted
  Counter first_pieces;       // at the sink: transfers that have begun to land
  Counter leases_expired;     // peers that fell silent
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_TRANSFER_METRICS_H_
