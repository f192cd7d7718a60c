// The state x event tables of every core in the simulation.
#ifndef BATON_TESTS_SIMULATION_CELLS_H_
#define BATON_TESTS_SIMULATION_CELLS_H_

#include <vector>

#include "common/cells.h"
#include "decode_worker/decode_cells.h"
#include "kvtransfer/transfer_cells.h"
#include "prefill_worker/prefill_cells.h"
#include "router/request_cells.h"

namespace baton::sim {

inline std::vector<CellTable> CellTables() {
  return {router::RequestCells(), worker::PrefillCells(), worker::DecodeCells(),
          kvtransfer::SourceCells(), kvtransfer::SinkCells()};
}

}  // namespace baton::sim

#endif  // BATON_TESTS_SIMULATION_CELLS_H_
