// Where each cell of decode_state.h is seen; for tests.
#ifndef BATON_DECODE_WORKER_DECODE_CELLS_H_
#define BATON_DECODE_WORKER_DECODE_CELLS_H_

#include "common/cells.h"

namespace baton::worker {

inline CellTable DecodeCells() {
  return {"decode",
          {"Queued", "Granted", "Generating", "Kept", "Quiescing"},
          {
              {"Reserve", "--uu-"},
              {"Room", "s----"},
              {"Commit", "-s---"},
              {"BadCommit", "-u---"},
              {"Dropped", "ss---"},
              {"Quiesced", "----s"},
              {"Attach", "usssu"},
              {"Token", "--s--"},
              {"LastToken", "--s--"},
              {"SequenceFailed", "--u--"},
              {"Unattached", "--uu-"},
              {"Revoke", "usuuu"},
              {"Deadline", "ussu-"},
              {"Cancel", "ssssu"},
              {"RouterLost", "ussuu"},
          }};
}

}  // namespace baton::worker

#endif  // BATON_DECODE_WORKER_DECODE_CELLS_H_
