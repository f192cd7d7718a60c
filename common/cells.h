// State x event tables of the cores, as tests see them: which cells must occur where, and which
// did.
#ifndef BATON_COMMON_CELLS_H_
#define BATON_COMMON_CELLS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton {

// A row per event, a column per state. Each cell is marked
//   s  sim: the simulation goes through it (and fails when it does not),
//   u  unit: too rare for the simulation, or a peer must misbehave,
//   -  impossible: whatever goes through it fails.
// The unit test of the machine drives every cell that is not impossible.
struct CellTable {
  std::string machine;
  std::vector<std::string> states;
  std::vector<std::pair<std::string, std::string>> rows;  // event, one mark per state

  // '?' when the table has no such cell.
  char Mark(std::string_view state, std::string_view event) const;
  // Cells of one mark.
  size_t Count(char mark) const;
};

// Cells that are "-" in the drawing in the comments of `header` and not here, or the other way
// round; one a line, empty: none. The drawing has a line with the names of the states, and below it
// a line per event whose cells begin where the names do. "Gone(a)" is "Gone".
std::string DrawingProblems(const CellTable& table, std::string_view header);

class CellCounts {
 public:
  void Add(std::string_view machine, std::string_view state, std::string_view event);
  uint64_t Of(std::string_view machine, std::string_view state, std::string_view event) const;

  // The tables with their counts.
  std::string ToString(const std::vector<CellTable>& tables) const;
  // Cells of the marks `must` that never occurred, impossible ones that did, and what occurred and
  // is in no table. One a line; empty: none.
  std::string Problems(const std::vector<CellTable>& tables, std::string_view must) const;

 private:
  std::map<std::string, uint64_t> counts_;  // "machine state event"
};

}  // namespace baton

#endif  // BATON_COMMON_CELLS_H_
