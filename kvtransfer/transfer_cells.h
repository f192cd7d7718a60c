// Where each cell of source_state.h and sink_state.h is seen; for tests.
#ifndef BATON_KVTRANSFER_TRANSFER_CELLS_H_
#define BATON_KVTRANSFER_TRANSFER_CELLS_H_

#include "common/cells.h"

namespace baton::kvtransfer {

inline CellTable SourceCells() {
  return {"source",
          {"Connecting", "Reserving", "Waiting", "Opening", "Granted", "Committing", "Ending"},
          {
              {"SessionOpen", "s-----u"},
              {"Granted", "-ssuuuu"},
              {"Wait", "-suuuuu"},
              {"Refused", "-suuuuu"},
              {"Revoked", "-uuussu"},
              {"DataConnected", "-sus--u"},
              {"Committed", "----usu"},
              {"CommitRefused", "----uuu"},
              {"Ship", "uuuusuu"},
              {"Commit", "uuuusuu"},
              {"Release", "sssussu"},
              {"DataEnded", "-suussu"},
              {"SessionEnded", "ssuussu"},
              {"TransferClosed", "------s"},
          }};
}

inline CellTable SinkCells() {
  return {"sink",
          {"Gone", "Asked", "Waiting", "Granted", "Quiescing"},
          {
              {"Reserve", "suuuu"},
              {"Release", "ssssu"},
              {"HostGrant", "ussuu"},
              {"HostWait", "usuuu"},
              {"HostRefuse", "usuuu"},
              {"HostDrop", "sussu"},
              {"GoodCommit", "---su"},
              {"BadCommit", "---uu"},
              {"TransferFailed", "---su"},
              {"DataEnded", "---su"},
              {"TransferClosed", "---su"},
              {"SessionEnded", "-uusu"},
              {"Quiesced", "----s"},
          }};
}

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_TRANSFER_CELLS_H_
