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
  kGranted,     // pieces may be shipped
  kCommitting,  // Commit was queued after the last piece
  kEnding,      // the outcome is known; the transport may still read blocks
};

enum class SourceEvent {
  kSessionOpen,  // SinkHello was accepted
  kGrantedMessage,
  kWaitMessage,
  kRefusedMessage,
  kRevokedMessage,
  kCommitted,       // commit reply
  kCommitRefused,   // commit reply
  kShip,            // host
  kCommit,          // host
  kRelease,         // host
  kDataEnded,       // data connection lost or impossible
  kSessionEnded,    // control session closed, silent, stale
  kTransferClosed,  // the transport reads no block of it any more
};

//                 Connecting    Reserving     Waiting       Granted       Committing    Ending
// SessionOpen     send Reserve  -             -             -             -             ignore
// Granted         bad peer      ->Granted     ->Granted     bad peer      bad peer      ignore
// Wait            bad peer      ->Waiting     bad peer      bad peer      bad peer      ignore
// Refused         bad peer      end NotGr.    end NotGr.    bad peer      bad peer      ignore
// Revoked         bad peer      bad peer      bad peer      ->Ending      ->Ending      ignore
// Committed       -             -             -             bad peer      ->Ending      ignore (a)
// CommitRefused   -             -             -             ->Ending (b)  ->Ending      ignore
// Ship            host error    host error    host error    send          host error    ignore
// Commit          host error    host error    host error    ->Committing  host error    ignore
// Release         end Released  end Released  end Released  ->Ending      ->Ending      ignore
// DataEnded       -             -             -             end PeerLost  end PeerLost  end
// SessionEnded    end PeerLost  end PeerLost  end PeerLost  ->Ending      ->Ending      ignore
// TransferClosed  -             -             -             -             -             end
//
// "-": cannot occur. "bad peer": the message is out of order; the session ends. "host error": a
// broken invariant of the caller (BATON_CHECK). Release sends Release on the session, except from
// Connecting, where the sink never heard of the attempt. Everything for an attempt that is gone is
// ignored: messages may cross with our Release.
// (a) while Ending by our own Release the outcome becomes Committed.
// (b) the sink refuses a transfer whose pieces are bad without waiting for Commit.

std::string_view ToString(SourceState state);
std::string_view ToString(SourceEvent event);

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SOURCE_STATE_H_
