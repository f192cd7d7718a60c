// Where each cell of prefill_state.h is seen; for tests.
#ifndef BATON_PREFILL_WORKER_PREFILL_CELLS_H_
#define BATON_PREFILL_WORKER_PREFILL_CELLS_H_

#include "common/cells.h"

namespace baton::worker {

inline CellTable PrefillCells() {
  return {"prefill",
          {"Queued", "Reserving", "Waiting", "Leaving", "Running", "Committing", "Ending"},
          {
              {"Room", "s------"},
              {"WaitAnswer", "-s-----"},
              {"Granted", "-ss----"},
              {"NotGranted", "-ss----"},
              {"Patience", "-ss----"},
              {"LayerReady", "----s--"},
              {"FirstToken", "----s--"},
              {"FirstTokenEnds", "----s--"},
              {"SequenceFailed", "----u--"},
              {"Committed", "-----su"},
              {"Broken", "----ssu"},
              {"Released", "---s--s"},
              {"Deadline", "ssuuus-"},
              {"Cancel", "sssussu"},
              {"RouterLost", "uuuuuuu"},
          }};
}

}  // namespace baton::worker

#endif  // BATON_PREFILL_WORKER_PREFILL_CELLS_H_
