#include "tests/simulation/cells.h"

#include <cstdio>
#include <set>
#include <utility>

namespace baton::sim {

namespace {

std::string Key(std::string_view machine, std::string_view state, std::string_view event) {
  return std::string(machine) + " " + std::string(state) + " " + std::string(event);
}

template <typename Visit>
void ForEachCell(Visit visit) {
  for (const CellTable& table : CellTables()) {
    for (const auto& [event, marks] : table.rows) {
      for (size_t i = 0; i < table.states.size(); ++i) {
        visit(Key(table.machine, table.states[i], event), marks.at(i));
      }
    }
  }
}

}  // namespace

const std::vector<CellTable>& CellTables() {
  static const auto* const tables = new std::vector<CellTable>{
      {"router",
       {"queued", "prefilling", "handoff", "decoding", "finished"},
       {
           {"submitted_split", "sssuu"},
           {"submitted_alone", "s--uu"},
           {"submit_refused", "suuuu"},
           {"started", "ssuuu"},
           {"first_token", "ususu"},
           {"first_token_ends", "usuuu"},
           {"token", "usssu"},
           {"token_ends", "uuusu"},
           {"no_room", "usuuu"},
           {"source_try_again", "uuuuu"},
           {"source_failed", "uuuuu"},
           {"source_lost", "usssu"},
           {"sink_try_again", "ussuu"},
           {"sink_failed", "uuuuu"},
           {"sink_lost", "usssu"},
           {"end", "ssssu"},
       }},
      {"prefill",
       {"Queued", "Reserving", "Waiting", "Leaving", "Running", "Committing", "Ending"},
       {
           {"Room", "s------"},
           {"WaitAnswer", "-s-----"},
           {"Granted", "-ss----"},
           {"NotGranted", "-ssu--u"},
           {"Patience", "-ss----"},
           {"LayerReady", "----s--"},
           {"FirstToken", "----s--"},
           {"FirstTokenEnds", "----s--"},
           {"SequenceFailed", "----u--"},
           {"Committed", "-----su"},
           {"Broken", "----ssu"},
           {"Released", "---s--s"},
           {"Deadline", "ssuuss-"},
           {"Cancel", "sssussu"},
           {"RouterLost", "uuuuuuu"},
       }},
      {"decode",
       {"Queued", "Granted", "Generating", "Kept", "Quiescing"},
       {
           {"Reserve", "uuuuu"},
           {"Room", "s----"},
           {"Commit", "-s---"},
           {"BadCommit", "-u---"},
           {"Dropped", "ss---"},
           {"Quiesced", "----s"},
           {"Attach", "usssu"},
           {"Token", "--u--"},
           {"LastToken", "--u--"},
           {"SequenceFailed", "--u--"},
           {"Unattached", "--uu-"},
           {"Deadline", "ussuu"},
           {"Cancel", "ssssu"},
           {"RouterLost", "ussuu"},
       }},
      {"source",
       {"Connecting", "Reserving", "Waiting", "Opening", "Granted", "Committing", "Ending"},
       {
           {"SessionOpen", "s------"},
           {"Granted", "ussuuuu"},
           {"Wait", "usuuuuu"},
           {"Refused", "usuuuuu"},
           {"Revoked", "uuuussu"},
           {"DataConnected", "usus--u"},
           {"Committed", "----usu"},
           {"CommitRefused", "----uuu"},
           {"Ship", "uuuusuu"},
           {"Commit", "uuuusuu"},
           {"Release", "sssussu"},
           {"DataEnded", "usuussu"},
           {"SessionEnded", "ssuussu"},
           {"TransferClosed", "------s"},
       }},
      {"sink",
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
           {"SessionEnded", "uuusu"},
           {"Quiesced", "----s"},
       }},
  };
  return *tables;
}

void CellCounts::Add(std::string_view machine, std::string_view state, std::string_view event) {
  ++counts_[Key(machine, state, event)];
}

uint64_t CellCounts::Of(const std::string& machine, const std::string& state,
                        const std::string& event) const {
  const auto found = counts_.find(Key(machine, state, event));
  return found == counts_.end() ? 0 : found->second;
}

std::string CellCounts::ToString() const {
  std::string out;
  char text[64];
  for (const CellTable& table : CellTables()) {
    std::snprintf(text, sizeof text, "%-18s", table.machine.c_str());
    out += text;
    for (const std::string& state : table.states) {
      std::snprintf(text, sizeof text, "%14s", state.c_str());
      out += text;
    }
    out += "\n";
    for (const auto& [event, marks] : table.rows) {
      std::snprintf(text, sizeof text, "%-18s", event.c_str());
      out += text;
      for (size_t i = 0; i < table.states.size(); ++i) {
        std::snprintf(text, sizeof text, "%12llu %c",
                      static_cast<unsigned long long>(Of(table.machine, table.states[i], event)),
                      marks.at(i));
        out += text;
      }
      out += "\n";
    }
  }
  return out;
}

std::string CellCounts::Problems(bool complete) const {
  std::string out;
  std::set<std::string> known;
  ForEachCell([&](const std::string& key, char mark) {
    known.insert(key);
    const bool occurred = counts_.count(key) != 0;
    if (mark == '-' && occurred) out += "impossible, but occurred: " + key + "\n";
    if (mark == 's' && !occurred && complete) out += "never occurred: " + key + "\n";
  });
  for (const auto& [key, count] : counts_) {
    if (known.count(key) == 0) out += "in no table: " + key + "\n";
  }
  return out;
}

}  // namespace baton::sim
