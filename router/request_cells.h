// Where each cell of request_state.h is seen; for tests.
#ifndef BATON_ROUTER_REQUEST_CELLS_H_
#define BATON_ROUTER_REQUEST_CELLS_H_

#include "common/cells.h"

namespace baton::router {

inline CellTable RequestCells() {
  return {"router",
          {"queued", "prefilling", "handoff", "decoding", "finished", "failed"},
          {
              {"submitted_split", "ssuuu-"},
              {"submitted_alone", "s--u--"},
              {"submit_refused", "suuuu-"},
              {"started", "ss--u-"},
              {"first_token_of_some", "us-su-"},
              {"first_token", "-s-su-"},
              {"first_token_ends", "us-uu-"},
              {"first_token_again", "-uuuu-"},
              {"token", "usssu-"},
              {"token_ends", "uuusu-"},
              {"no_room", "usuuu-"},
              {"source_try_again", "uuuuu-"},
              {"source_failed", "uuuuu-"},
              {"source_lost", "usssu-"},
              {"sink_try_again", "ussuu-"},
              {"sink_failed", "uuuuu-"},
              {"sink_lost", "usssu-"},
              {"end", "ssssuu"},
          }};
}

}  // namespace baton::router

#endif  // BATON_ROUTER_REQUEST_CELLS_H_
