#include "kvtransfer/transfer_metrics.h"

namespace baton::kvtransfer {

TransferMetrics::TransferMetrics(MetricsRegistry& registry)
    : in_flight(registry
                    .AddGauge("baton_transfers_in_flight",
                              "KV transfers from the grant to their end, as source or sink.")
                    .Get()),
      handoff_seconds(registry
                          .AddHistogram("baton_handoff_seconds",
                                        "Last layer ready at the source until the sink committed.",
                                        LatencyBounds())
                          .Get()),
      handoff_bytes(registry
                        .AddCounter("baton_handoff_bytes_total",
                                    "Bytes of KV blocks shipped by committed transfers.")
                        .Get()),
      failures(registry.AddCounter("baton_handoff_failures_total",
                                   "Granted transfers that did not commit, releases excepted.",
                                   {"cause"})),
      first_pieces(registry
                       .AddCounter("baton_handoff_first_pieces_total",
                                   "Transfers whose first piece has landed at this sink.")
                       .Get()),
      leases_expired(registry
                         .AddCounter("baton_leases_expired_total",
                                     "Peers whose session ended because they fell silent.")
                         .Get()) {}

}  // namespace baton::kvtransfer
