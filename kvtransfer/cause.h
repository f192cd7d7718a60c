// Why a reservation or transfer ended early: the protocol's own enum, and its stable label.
#ifndef BATON_KVTRANSFER_CAUSE_H_
#define BATON_KVTRANSFER_CAUSE_H_

#include <string_view>

#include "baton/worker/v1/worker.pb.h"

namespace baton::kvtransfer {

using Cause = worker::v1::Cause;

// "checksum_mismatch" for CAUSE_CHECKSUM_MISMATCH: the label of baton_handoff_failures_total.
// Numbers that are not in the enum (a peer sent them) are "unknown".
std::string_view CauseLabel(Cause cause);

// What a peer sent as a cause: unknown numbers and CAUSE_UNSPECIFIED become CAUSE_INTERNAL, so that
// a received cause always says "failed".
Cause CauseFromPeer(int value);

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_CAUSE_H_
