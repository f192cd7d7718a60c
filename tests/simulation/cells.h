// Which cells of the cores' state x event tables the runs went through, and which they must.
#ifndef BATON_TESTS_SIMULATION_CELLS_H_
#define BATON_TESTS_SIMULATION_CELLS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace baton::sim {

// A table as text: a row per event, a column per state, each cell
//   s  must occur in the simulation,
//   u  is covered by a unit test of the machine,
//   -  is impossible.
struct CellTable {
  std::string machine;
  std::vector<std::string> states;
  std::vector<std::pair<std::string, std::string>> rows;  // event, one letter per state
};
const std::vector<CellTable>& CellTables();

class CellCounts {
 public:
  void Add(std::string_view machine, std::string_view state, std::string_view event);
  uint64_t Of(const std::string& machine, const std::string& state, const std::string& event) const;

  // All tables with their counts.
  std::string ToString() const;
  // Impossible cells that occurred and cells that no table has; and, when `complete`, sim cells at
  // zero. One a line; empty: none.
  std::string Problems(bool complete) const;

 private:
  std::map<std::string, uint64_t> counts_;  // "machine state event"
};

}  // namespace baton::sim

#endif  // BATON_TESTS_SIMULATION_CELLS_H_
