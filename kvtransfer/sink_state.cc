#include "kvtransfer/sink_state.h"

namespace baton::kvtransfer {

std::string_view ToString(SinkState state) {
  switch (state) {
    case SinkState::kAsked:
      return "Asked";
    case SinkState::kWaiting:
      return "Waiting";
    case SinkState::kGranted:
      return "Granted";
    case SinkState::kQuiescing:
      return "Quiescing";
  }
  return "?";
}

std::string_view ToString(SinkEvent event) {
  switch (event) {
    case SinkEvent::kReserve:
      return "Reserve";
    case SinkEvent::kRelease:
      return "Release";
    case SinkEvent::kHostGrant:
      return "HostGrant";
    case SinkEvent::kHostWait:
      return "HostWait";
    case SinkEvent::kHostRefuse:
      return "HostRefuse";
    case SinkEvent::kHostDrop:
      return "HostDrop";
    case SinkEvent::kGoodCommit:
      return "GoodCommit";
    case SinkEvent::kBadCommit:
      return "BadCommit";
    case SinkEvent::kTransferFailed:
      return "TransferFailed";
    case SinkEvent::kDataEnded:
      return "DataEnded";
    case SinkEvent::kTransferClosed:
      return "TransferClosed";
    case SinkEvent::kSessionEnded:
      return "SessionEnded";
    case SinkEvent::kQuiesced:
      return "Quiesced";
  }
  return "?";
}

}  // namespace baton::kvtransfer
