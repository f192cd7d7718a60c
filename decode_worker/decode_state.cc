#include "decode_worker/decode_state.h"

namespace baton::worker {

std::string_view ToString(DecodeState state) {
  constexpr std::string_view kNames[kNumDecodeStates] = {"Queued", "Granted", "Generating", "Kept",
                                                         "Quiescing"};
  return kNames[static_cast<int>(state)];
}

std::string_view ToString(DecodeEvent event) {
  constexpr std::string_view kNames[kNumDecodeEvents] = {
      "Reserve",    "Room",   "Commit",   "BadCommit", "Dropped",
      "Quiesced",   "Attach", "Token",    "LastToken", "SequenceFailed",
      "Unattached", "Revoke", "Deadline", "Cancel",    "RouterLost"};
  return kNames[static_cast<int>(event)];
}

}  // namespace baton::worker
