// States and events of one attempt at the sink's worker.
#ifndef BATON_DECODE_WORKER_DECODE_STATE_H_
#define BATON_DECODE_WORKER_DECODE_STATE_H_

#include <cstdint>
#include <string_view>

namespace baton::worker {

enum class DecodeState : uint8_t {
  kQueued,      // a source asked; in the queue for blocks, by age
  kGranted,     // blocks promised, nothing committed
  kGenerating,  // committed; in the engine
  kKept,        // its last event is there, the router has not attached
  kQuiescing,   // over; pieces may still be on their way into its blocks
};
inline constexpr int kNumDecodeStates = 5;

enum class DecodeEvent : uint8_t {
  kReserve,    // from a source, of an attempt that is here
  kRoom,       // blocks taken
  kCommit,     // good
  kBadCommit,  // the state in it does not fit the reservation
  kDropped,    // the transfer failed, or the source released it or is lost
  kQuiesced,
  kAttach,
  kToken,      // of a choice, maybe its last
  kLastToken,  // no choice goes on
  kSequenceFailed,
  kUnattached,  // nobody attached for a lease after the commit
  kRevoke,      // an older sequence needs the blocks
  kDeadline,
  kCancel,
  kRouterLost,
};
inline constexpr int kNumDecodeEvents = 15;

//                 Queued     Granted     Generating  Kept       Quiescing
// Reserve(a)      -          -           refused     refused    -
// Room            Granted(b) -           -           -          -
// Commit          -          Generating  -           -          -
// BadCommit       -          Quiesc.(c)  -           -          -
// Dropped         gone       Quiesc.(c)  -           -          -
// Quiesced        -          -           -           -          gone
// Attach          noted      noted       flow(d)     flow, gone ignore
// Token           -          -           event(e)    -          -
// LastToken       -          -           Kept/gone   -          -
// SequenceFailed  -          -           Kept/gone   -          -
// Unattached      -          -           gone(f)     gone(f)    -
// Revoke          ignore     Quiesc.(j)  ignore      ignore     ignore
// Deadline        gone(g)    Quiesc.(h)  gone(h)     gone(h)    -
// Cancel          gone(g)    Quiesc.(i)  gone        gone       ignore
// RouterLost      gone(g)    Quiesc.(i)  gone        gone       ignore
//
// "-": cannot occur. "gone": everything given back, tombstone.
// (a) Of a committed attempt; before the commit and while it quiesces the transfer's side answers
// by itself (kvtransfer/sink_state.h). Of an attempt that is not here: refused when this worker
// runs it alone (TOMBSTONE), refused when draining
// (DRAINING), when its router has no session (NO_SESSION), when it never fits (NO_ROOM), when its
// deadline passed (DEADLINE); else Queued, and Wait to the source unless there is room at once. (b)
// Granted to the source. (c) Lost{cause} to the router, unless the source released it and the
// router knows: a source that releases because the transfer broke, or because it lost the router,
// says so, and Lost goes out. (d) The events kept so far, in order. (e) Kept until Attach. (f)
// Lost{LEASE_EXPIRED} to the router. (g) Refused{cause} to the source. (h)
// Failed(DEADLINE_EXCEEDED) to the router, and Revoked to the source before the commit. (i) Revoked
// to the source. (j) Lost{PREEMPTED} to the router, Revoked to the source.
std::string_view ToString(DecodeState state);
std::string_view ToString(DecodeEvent event);

}  // namespace baton::worker

#endif  // BATON_DECODE_WORKER_DECODE_STATE_H_
