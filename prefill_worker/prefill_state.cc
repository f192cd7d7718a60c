#include "prefill_worker/prefill_state.h"

namespace baton::worker {

std::string_view ToString(PrefillState state) {
  constexpr std::string_view kNames[kNumPrefillStates] = {
      "Queued", "Reserving", "Waiting", "Leaving", "Running", "Committing", "Ending"};
  return kNames[static_cast<int>(state)];
}

std::string_view ToString(PrefillEvent event) {
  constexpr std::string_view kNames[kNumPrefillEvents] = {
      "Room",       "WaitAnswer", "Granted",        "NotGranted",     "Patience",
      "LayerReady", "FirstToken", "FirstTokenEnds", "SequenceFailed", "Committed",
      "Broken",     "Released",   "Deadline",       "Cancel",         "RouterLost"};
  return kNames[static_cast<int>(event)];
}

}  // namespace baton::worker
