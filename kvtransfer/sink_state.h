// States and events of one attempt at the sink, and what each event does in each state.
#ifndef BATON_KVTRANSFER_SINK_STATE_H_
#define BATON_KVTRANSFER_SINK_STATE_H_

#include <string_view>

namespace baton::kvtransfer {

// A committed attempt is forgotten here: its sequence, and its tombstone in the end, belong to the
// host. "Gone" is the column of events for attempts that are not known.
enum class SinkState {
  kAsked,      // the host has it and has not answered
  kWaiting,    // the host said Wait
  kGranted,    // blocks are promised; pieces arrive
  kQuiescing,  // dropped; the receive thread may still be inside a block
};
inline constexpr int kNumSinkStates = 4;

enum class SinkEvent {
  kReserve,  // from a source
  kRelease,  // from the source that reserved it
  kHostGrant,
  kHostWait,
  kHostRefuse,
  kHostDrop,        // cancel, deadline, router lost, preemption
  kGoodCommit,      // Commit arrived, every piece is there, hash and state are accepted
  kBadCommit,       // Commit arrived and something is wrong
  kTransferFailed,  // a piece was damaged
  kDataEnded,       // its data connection ended
  kTransferClosed,  // the source closed it on the data connection
  kSessionEnded,    // the source's control session closed or fell silent
  kQuiesced,        // the receive thread is out of the blocks
};
inline constexpr int kNumSinkEvents = 13;

//                 Gone            Asked         Waiting       Granted         Quiescing
// Reserve         ask host (a)    bad peer      bad peer      bad peer        refuse Tombstone
// Release         tombstone (d)   drop          drop          ->Quiescing     ignore
// HostGrant       host error      ->Granted     ->Granted     host error      host error
// HostWait        host error      ->Waiting     host error    host error      host error
// HostRefuse      host error      ->Gone        ->Gone        host error      host error
// HostDrop        tombstone       drop+Refused  drop+Refused  ->Quiescing(b)  ignore
// GoodCommit      -               -             -             commit          ignore (e)
// BadCommit       -               -             -             ->Quiescing(c)  ignore (e)
// TransferFailed  -               -             -             ->Quiescing(b)  ignore (e)
// DataEnded       -               -             -             ->Quiescing(b)  ignore (e)
// TransferClosed  -               -             -             ignore (f)      ignore (e)
// SessionEnded    -               drop          drop          ->Quiescing     ignore
// Quiesced        -               -             -             -               OnQuiesced
//
// "-": cannot occur. "bad peer": the session ends, which drops all of that source. "host error": a
// broken invariant of the caller (BATON_CHECK); a host that grants or refuses late, after
// OnDropped, is told so by state(). "drop" and "->Quiescing" make a tombstone and call OnDropped,
// except after HostDrop, whose caller knows. A Reserve of an attempt that another source holds is
// refused with TOMBSTONE and changes nothing. (a) a tombstone: refuse Tombstone; unequal
// fingerprints: refuse FingerprintMismatch. (b) Revoked goes to the source. (c) the commit reply is
// Refused; nothing goes on the session. (d) unless this session committed it. (e) it crossed with
// the drop. (f) its Release is on the session, and says whether the router is to be told.

std::string_view ToString(SinkState state);
std::string_view ToString(SinkEvent event);

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SINK_STATE_H_
