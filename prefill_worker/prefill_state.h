// States and events of one attempt at the source's worker.
#ifndef BATON_PREFILL_WORKER_PREFILL_STATE_H_
#define BATON_PREFILL_WORKER_PREFILL_STATE_H_

#include <cstdint>
#include <string_view>

namespace baton::worker {

enum class PrefillState : uint8_t {
  kQueued,      // in the queue for its own blocks
  kReserving,   // has them; a sink was asked and has not answered
  kWaiting,     // stands in that sink's queue
  kLeaving,     // gave that sink up; the next is asked when the source is rid of it
  kRunning,     // granted; the prompt is computed, layers are shipped
  kCommitting,  // the first token is out; Commit is on its way
  kEnding,      // over for the router; the source may still read the blocks
};
inline constexpr int kNumPrefillStates = 7;

enum class PrefillEvent : uint8_t {
  kRoom,        // own blocks taken
  kWaitAnswer,  // from the sink
  kGranted,     // from the sink
  kNotGranted,  // the transfer ended before a grant, or before it was of use: refused, revoked
                // while the data connection was opened, or the sink is lost
  kPatience,    // no grant for too long
  kLayerReady,
  kFirstToken,      // the last choice's, and a choice goes on
  kFirstTokenEnds,  // the last choice's, and none goes on
  kSequenceFailed,
  kCommitted,  // the transfer ended well
  kBroken,     // the granted transfer ended otherwise: refused, revoked, sink lost
  kReleased,   // the transfer ended by our own Release
  kDeadline,
  kCancel,
  kRouterLost,
};
inline constexpr int kNumPrefillEvents = 15;

//                Queued     Reserving  Waiting    Leaving    Running     Committing  Ending
// Room           Reserving  -          -          -          -           -           -
// WaitAnswer     -          Waiting    -          -          -           -           -
// Granted        -          Running(a) Running(a) -          -           -           -
// NotGranted     -          next(b)    next(b)    -          -           -           -
// Patience       -          Leaving    Leaving    -          -           -           -
// LayerReady     -          -          -          -          ship        -           -
// FirstToken     -          -          -          -          Commit.(c)  -           -
// FirstTokenEnds -          -          -          -          Ending(d)   -           -
// SequenceFailed -          -          -          -          Ending(e)   -           -
// Committed      -          -          -          -          -           gone(f)     gone
// Broken         -          -          -          -          gone(g)     gone(h)     gone
// Released       -          -          -          next(b)    -           -           gone
// Deadline       gone(e)    Ending(e)  Ending(e)  Ending(e)  Ending(e)   Ending(h)   -
// Cancel         gone       Ending     Ending     Ending     Ending      Ending      ignore
// RouterLost     gone       Ending(i)  Ending(i)  Ending(i)  Ending(i)   Ending(i)   ignore
//
// "-": cannot occur. "gone": blocks given back, tombstone. Going to Ending calls Release.
// (a) Started to the router. (b) the next sink is asked; after the last: NoRoom to the router, and
// whether a sink lacked room (or took it back) or none was reached; gone. (c) FirstToken of every
// choice to the router, Commit to the sink. (d) FirstToken of every choice to the router. (e)
// Failed to the router. (f) HandedOff to the router. (g) Failed(UNAVAILABLE, cause) to the router.
// (h) nothing to the router: after FirstToken the sink's word decides. (i) The Release says that we
// lost the router, and a sink that had granted tells it: it may be alive and wait for that word.
std::string_view ToString(PrefillState state);
std::string_view ToString(PrefillEvent event);

}  // namespace baton::worker

#endif  // BATON_PREFILL_WORKER_PREFILL_STATE_H_
