#include "kvtransfer/source_state.h"

namespace baton::kvtransfer {

std::string_view ToString(SourceState state) {
  switch (state) {
    case SourceState::kConnecting:
      return "Connecting";
    case SourceState::kReserving:
      return "Reserving";
    case SourceState::kWaiting:
      return "Waiting";
    case SourceState::kOpening:
      return "Opening";
    case SourceState::kGranted:
      return "Granted";
    case SourceState::kCommitting:
      return "Committing";
    case SourceState::kEnding:
      return "Ending";
  }
  return "?";
}

std::string_view ToString(SourceEvent event) {
  switch (event) {
    case SourceEvent::kSessionOpen:
      return "SessionOpen";
    case SourceEvent::kGrantedMessage:
      return "Granted";
    case SourceEvent::kWaitMessage:
      return "Wait";
    case SourceEvent::kRefusedMessage:
      return "Refused";
    case SourceEvent::kRevokedMessage:
      return "Revoked";
    case SourceEvent::kDataConnected:
      return "DataConnected";
    case SourceEvent::kCommitted:
      return "Committed";
    case SourceEvent::kCommitRefused:
      return "CommitRefused";
    case SourceEvent::kShip:
      return "Ship";
    case SourceEvent::kCommit:
      return "Commit";
    case SourceEvent::kRelease:
      return "Release";
    case SourceEvent::kDataEnded:
      return "DataEnded";
    case SourceEvent::kSessionEnded:
      return "SessionEnded";
    case SourceEvent::kTransferClosed:
      return "TransferClosed";
  }
  return "?";
}

}  // namespace baton::kvtransfer
