#include "common/cells.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <sstream>

namespace baton {
namespace {

std::string Key(std::string_view machine, std::string_view state, std::string_view event) {
  return std::string(machine) + " " + std::string(state) + " " + std::string(event);
}

template <typename Visit>
void ForEachCell(const CellTable& table, Visit visit) {
  for (const auto& [event, marks] : table.rows) {
    for (size_t i = 0; i < table.states.size(); ++i) visit(table.states[i], event, marks.at(i));
  }
}

// Where the names of the states begin; absent: not the line that names them all.
std::optional<std::vector<size_t>> ColumnsOf(const CellTable& table, const std::string& line) {
  if (line.rfind("//", 0) != 0) return std::nullopt;
  std::vector<size_t> columns;
  size_t from = 2;
  for (const std::string& state : table.states) {
    const size_t at = line.find(state, from);
    if (at == line.npos) return std::nullopt;
    columns.push_back(at);
    from = at + state.size();
  }
  return columns;
}

std::string Cell(const std::string& line, size_t begin, size_t end) {
  if (begin >= line.size()) return "";
  const std::string text = line.substr(begin, end - begin);
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

// The cells of `event` in the drawing.
std::optional<std::vector<std::string>> DrawnRow(const CellTable& table, const std::string& event,
                                                 std::string_view header) {
  std::istringstream lines{std::string(header)};
  std::optional<std::vector<size_t>> columns;
  std::string line;
  while (std::getline(lines, line)) {
    if (!columns.has_value()) {
      columns = ColumnsOf(table, line);
      continue;
    }
    std::string name = Cell(line, 2, columns->front());
    name = name.substr(0, name.find('('));
    if (name != " " + event) continue;
    std::vector<std::string> row;
    for (size_t i = 0; i < columns->size(); ++i) {
      row.push_back(Cell(line, (*columns)[i], i + 1 < columns->size() ? (*columns)[i + 1] : 999));
    }
    return row;
  }
  return std::nullopt;
}

}  // namespace

char CellTable::Mark(std::string_view state, std::string_view event) const {
  char found = '?';
  ForEachCell(*this, [&](const std::string& s, const std::string& e, char mark) {
    if (s == state && e == event) found = mark;
  });
  return found;
}

size_t CellTable::Count(char mark) const {
  size_t count = 0;
  for (const auto& row : rows) {
    count += static_cast<size_t>(std::count(row.second.begin(), row.second.end(), mark));
  }
  return count;
}

std::string DrawingProblems(const CellTable& table, std::string_view header) {
  std::string out;
  for (const auto& [event, marks] : table.rows) {
    const auto row = DrawnRow(table, event, header);
    if (!row.has_value()) {
      out += "not drawn: " + event + "\n";
      continue;
    }
    for (size_t i = 0; i < row->size(); ++i) {
      if (((*row)[i] == "-") == (marks.at(i) == '-')) continue;
      out += "drawn as \"" + (*row)[i] + "\", marked " + marks.at(i) + ": " +
             Key(table.machine, table.states[i], event) + "\n";
    }
  }
  return out;
}

void CellCounts::Add(std::string_view machine, std::string_view state, std::string_view event) {
  ++counts_[Key(machine, state, event)];
}

uint64_t CellCounts::Of(std::string_view machine, std::string_view state,
                        std::string_view event) const {
  const auto found = counts_.find(Key(machine, state, event));
  return found == counts_.end() ? 0 : found->second;
}

std::string CellCounts::ToString(const std::vector<CellTable>& tables) const {
  std::string out;
  char text[64];
  for (const CellTable& table : tables) {
    std::snprintf(text, sizeof text, "%-18s", table.machine.c_str());
    out += text;
    for (const std::string& state : table.states) {
      std::snprintf(text, sizeof text, "%14s", state.c_str());
      out += text;
    }
    for (const auto& [event, marks] : table.rows) {
      std::snprintf(text, sizeof text, "\n%-18s", event.c_str());
      out += text;
      for (size_t i = 0; i < table.states.size(); ++i) {
        std::snprintf(text, sizeof text, "%12llu %c",
                      static_cast<unsigned long long>(Of(table.machine, table.states[i], event)),
                      marks.at(i));
        out += text;
      }
    }
    std::snprintf(text, sizeof text, "\n%zu sim, %zu unit, %zu impossible\n", table.Count('s'),
                  table.Count('u'), table.Count('-'));
    out += text;
  }
  return out;
}

std::string CellCounts::Problems(const std::vector<CellTable>& tables,
                                 std::string_view must) const {
  std::string out;
  std::set<std::string> known;
  for (const CellTable& table : tables) {
    ForEachCell(table, [&](const std::string& state, const std::string& event, char mark) {
      const std::string key = Key(table.machine, state, event);
      known.insert(key);
      const bool occurred = counts_.count(key) != 0;
      if (mark == '-' && occurred) out += "impossible, but occurred: " + key + "\n";
      if (must.find(mark) != must.npos && !occurred) out += "never occurred: " + key + "\n";
    });
  }
  for (const auto& [key, count] : counts_) {
    if (known.count(key) == 0) out += "in no table: " + key + "\n";
  }
  return out;
}

}  // namespace baton
