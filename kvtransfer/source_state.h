// States and events of one attempt at the source, and what each event does in each state.
#ifndef BATON_KVTRANSFER_SOURCE_STATE_H_
#define BATON_KVTRANSFER_SOURCE_STATE_H_

#include <string_view>

namespace baton::kvtransfer {

// An attempt that has ended is forgotten; "Gone" is the column of events for it.
enum class SourceState {
  kConnecting,  // its session is being opened; Reserve is held back
  kReserving,   // Reserve was sent
  kWaiting,     // the sink said Wait
  kOpening,     // granted; the data connection is being made
  kGranted,     // the host knows; pieces may be shipped
  kCommitting,  // Commit was queued after the last piece
  kEnding,      // the outcome is known; the transport may still read blocks
};
inline constexpr int kNumSourceStates = 7;

enum class SourceEvent {
  kSessionOpen,  // SinkHello was accepted
  kGrantedMessage,
  kWaitMessage,
  kRefusedMessage,
  kRevokedMessage,
  kDataConnected,
  kCommitted,       // commit reply
  kCommitRefused,   // commit reply
  kShip,            // host
  kCommit,          // host
  kRelease,         // host
  kDataEnded,       // data connection lost or hanging, or none of the sink's addresses is reached
  kSessionEnded,    // control session closed, silent, stale
  kTransferClosed,  // the transport reads no block of it any more
};
inline constexpr int kNumSourceEvents = 14;

//                Connecting  Reserving   Waiting     Opening     Granted     Committing  Ending
// SessionOpen    Reserving   -           -           -           -           -           ignore
// Granted        -           Opening     Opening     bad peer    bad peer    bad peer    ignore
// Wait           -           Waiting     bad peer    bad peer    bad peer    bad peer    ignore
// Refused        -           NotGranted  NotGranted  bad peer    bad peer    bad peer    ignore
// Revoked        -           bad peer    bad peer    Revoked     Ending      Ending      ignore
// DataConnected  -           ignore      ignore      Granted     -           -           ignore
// Committed      -           -           -           -           bad peer    Ending      ignore
// CommitRefused  -           -           -           -           bad peer    Ending      ignore
// Ship           host error  host error  host error  host error  send        host error  ignore
// Commit         host error  host error  host error  host error  Committing  host error  ignore
// Release        Released    Released    Released    Released    Ending      Ending      ignore
// DataEnded      -           ignore      ignore      PeerLost    PeerLost    PeerLost    end
// SessionEnded   PeerLost    PeerLost    PeerLost    PeerLost    PeerLost    PeerLost    end
// TransferClosed -           -           -           -           -           -           end
//
// An outcome's name: the attempt ends with it. "end": with the outcome it has. "-": cannot occur (a
// message before the sink's hello ends the session before it gets here). "bad peer": the message is
// out of order; the session ends. "host error": a broken invariant of the caller (BATON_CHECK).
// Opening goes on to Granted at once when the data connection is there. Release and DataEnded send
// Release on the session, except from Connecting, where the sink never heard of the attempt.
// Everything for an attempt that is gone is ignored: it may have crossed with our Release.

std::string_view ToString(SourceState state);
std::string_view ToString(SourceEvent event);

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SOURCE_STATE_H_
