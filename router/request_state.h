// The states of a request at the router and what every event does in each of them: the table below
// is the code (request_state.cc), request_flow.h carries it out.
//
//                     kQueued        kPrefilling    kHandoff       kDecoding
//  kSubmittedSplit    Prefilling     ignore         ignore         ignore
//  kSubmittedAlone    Decoding       -              -              ignore
//  kSubmitRefused     retry          ignore         ignore         ignore
//  kStarted           Prefilling+att attach         -              -
//  kFirstTokenOfSome  Prefilling+tok deliver        -              ignore
//  kFirstToken        -              Handoff        -              ignore
//  kFirstTokenEnds    Finished       Finished       -              ignore
//  kFirstTokenAgain   -              odd            odd            ignore
//  kToken             Decoding       Decoding       Decoding       deliver
//  kTokenEnds         Finished       Finished       Finished       Finished
//  kNoRoom            retry          retry          odd            odd
//  kSourceTryAgain    retry          retry          retry          ignore
//  kSourceFailed      Failed         Failed         Failed         ignore
//  kSourceLost        retry          Failed         ignore         ignore
//  kSinkTryAgain      retry          retry          retry          Failed
//  kSinkFailed        Failed         Failed         Failed         Failed
//  kSinkLost          retry          Failed         Failed         Failed
//  kEnd               Failed         Failed         Failed         Failed
//
// One prompt phase, then n choices: kPrefilling lasts until the source has sent the first token of
// every choice, and the request is over when every choice is. Which event a token is depends on
// what the client has of the other choices (delivered.h).
//
// kQueued: no worker has taken the request; an attempt may be on its way, and its events may
// overtake the answer to Submit. "retry" goes to kQueued with a new attempt number. "odd": a worker
// broke the protocol; counted, otherwise ignored. "-": impossible, our own order of calls excludes
// it. kFinished and kFailed ignore every event (a success may still wait for the report of its
// handoff). What never gets here: events that a worker in this part does not send, a Started that
// comes again or names no sink of Submit (all odd), a token that contradicts what the client saw,
// is of no choice, or goes on before any Started (kEnd, INTERNAL).
#ifndef BATON_ROUTER_REQUEST_STATE_H_
#define BATON_ROUTER_REQUEST_STATE_H_

#include <cstdint>
#include <string_view>

namespace baton::router {

enum class RequestState : uint8_t {
  kQueued,
  kPrefilling,
  kHandoff,
  kDecoding,
  kFinished,
  kFailed,
};
inline constexpr int kNumRequestStates = 6;

// Of the current attempt only; events of older ones are dropped before. "Sink" is the attached
// sink, and also the decode worker that runs the request alone.
enum class FlowEvent : uint8_t {
  kSubmittedSplit,
  kSubmittedAlone,
  kSubmitRefused,  // or no answer
  kStarted,
  // From the source: of a choice whose first token it has not sent in this attempt.
  kFirstTokenOfSome,  // others are still to come
  kFirstToken,        // the last of them; a choice goes on
  kFirstTokenEnds,    // every choice is over with it
  kFirstTokenAgain,   // of a choice whose first token it has sent
  kToken,             // from the sink
  kTokenEnds,         // every choice is over with it
  kNoRoom,
  kSourceTryAgain,  // the source gave up for a reason that another attempt may not meet
  kSourceFailed,
  kSourceLost,    // its session with us ended, or it lost the sink
  kSinkTryAgain,  // refused or revoked
  kSinkFailed,
  kSinkLost,
  kEnd,  // cancel, deadline, slow client, shutdown
};
inline constexpr int kNumFlowEvents = 18;

enum class FlowAction : uint8_t {
  kIgnore,
  kMove,  // only the state changes
  kAttach,
  kDeliver,  // the token goes to the client
  kFinish,   // the token goes to the client and every choice is over
  kRetry,
  kFail,
  kOdd,
  kImpossible,
};

struct Transition {
  RequestState next;
  FlowAction action;
};

Transition Next(RequestState state, FlowEvent event);

std::string_view ToString(RequestState state);
std::string_view ToString(FlowEvent event);

}  // namespace baton::router

#endif  // BATON_ROUTER_REQUEST_STATE_H_
