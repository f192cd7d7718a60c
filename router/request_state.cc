#include "router/request_state.h"

#include <array>

namespace baton::router {
namespace {

using S = RequestState;
using A = FlowAction;

// What a cell does; the next state follows, or stays where it is.
enum class Cell : uint8_t {
  kStay,        // ignore
  kPrefilling,  // move
  kDecoding,    // move
  kAttach,      // to kPrefilling
  kBegin,       // deliver, to kPrefilling
  kHandoff,     // deliver, to kHandoff
  kStream,      // deliver, to kDecoding
  kLast,        // deliver, to kFinished
  kRetry,
  kFail,
  kOdd,
  kNever,
};

using Row = std::array<Cell, 4>;  // kQueued, kPrefilling, kHandoff, kDecoding
constexpr Cell kS = Cell::kStay, kR = Cell::kRetry, kF = Cell::kFail, kO = Cell::kOdd,
               kN = Cell::kNever, kL = Cell::kLast;

constexpr std::array<Row, kNumFlowEvents> kTable = {{
    {Cell::kPrefilling, kS, kS, kS},                               // kSubmittedSplit
    {Cell::kDecoding, kN, kN, kS},                                 // kSubmittedAlone
    {kR, kS, kS, kS},                                              // kSubmitRefused
    {Cell::kAttach, Cell::kAttach, kN, kN},                        // kStarted
    {Cell::kBegin, Cell::kBegin, kN, kS},                          // kFirstTokenOfSome
    {kN, Cell::kHandoff, kN, kS},                                  // kFirstToken
    {kL, kL, kN, kS},                                              // kFirstTokenEnds
    {kN, kO, kO, kS},                                              // kFirstTokenAgain
    {Cell::kStream, Cell::kStream, Cell::kStream, Cell::kStream},  // kToken
    {kL, kL, kL, kL},                                              // kTokenEnds
    {kR, kR, kO, kO},                                              // kNoRoom
    {kR, kR, kR, kS},                                              // kSourceTryAgain
    {kF, kF, kF, kS},                                              // kSourceFailed
    {kR, kF, kS, kS},                                              // kSourceLost
    {kR, kR, kR, kF},                                              // kSinkTryAgain
    {kF, kF, kF, kF},                                              // kSinkFailed
    {kR, kF, kF, kF},                                              // kSinkLost
    {kF, kF, kF, kF},                                              // kEnd
}};

Transition Apply(Cell cell, RequestState state) {
  switch (cell) {
    case Cell::kStay:
      return {state, A::kIgnore};
    case Cell::kPrefilling:
      return {S::kPrefilling, A::kMove};
    case Cell::kDecoding:
      return {S::kDecoding, A::kMove};
    case Cell::kAttach:
      return {S::kPrefilling, A::kAttach};
    case Cell::kBegin:
      return {S::kPrefilling, A::kDeliver};
    case Cell::kHandoff:
      return {S::kHandoff, A::kDeliver};
    case Cell::kStream:
      return {S::kDecoding, A::kDeliver};
    case Cell::kLast:
      return {S::kFinished, A::kFinish};
    case Cell::kRetry:
      return {S::kQueued, A::kRetry};
    case Cell::kFail:
      return {S::kFailed, A::kFail};
    case Cell::kOdd:
      return {state, A::kOdd};
    case Cell::kNever:
      break;
  }
  return {state, A::kImpossible};
}

}  // namespace

Transition Next(RequestState state, FlowEvent event) {
  if (state == S::kFinished || state == S::kFailed) return {state, A::kIgnore};
  return Apply(kTable[static_cast<size_t>(event)][static_cast<size_t>(state)], state);
}

std::string_view ToString(RequestState state) {
  constexpr std::array<std::string_view, kNumRequestStates> kNames = {
      "queued", "prefilling", "handoff", "decoding", "finished", "failed"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view ToString(FlowEvent event) {
  constexpr std::array<std::string_view, kNumFlowEvents> kNames = {"submitted_split",
                                                                   "submitted_alone",
                                                                   "submit_refused",
                                                                   "started",
                                                                   "first_token_of_some",
                                                                   "first_token",
                                                                   "first_token_ends",
                                                                   "first_token_again",
                                                                   "token",
                                                                   "token_ends",
                                                                   "no_room",
                                                                   "source_try_again",
                                                                   "source_failed",
                                                                   "source_lost",
                                                                   "sink_try_again",
                                                                   "sink_failed",
                                                                   "sink_lost",
                                                                   "end"};
  return kNames[static_cast<size_t>(event)];
}

}  // namespace baton::router
