// The table cell by cell, against the drawing in request_state.h.
#include "router/request_state.h"

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace baton::router {
namespace {

constexpr RequestState kLive[] = {RequestState::kQueued, RequestState::kPrefilling,
                                  RequestState::kHandoff, RequestState::kDecoding};

// One word for what a cell does, as the drawing says it.
std::string Word(RequestState state, FlowEvent event) {
  const Transition t = Next(state, event);
  const bool stays = t.next == state;
  switch (t.action) {
    case FlowAction::kIgnore:
      return stays ? "ignore" : "?";
    case FlowAction::kOdd:
      return stays ? "odd" : "?";
    case FlowAction::kImpossible:
      return stays ? "-" : "?";
    case FlowAction::kRetry:
      return t.next == RequestState::kQueued ? "retry" : "?";
    case FlowAction::kFail:
      return t.next == RequestState::kFailed ? "Failed" : "?";
    case FlowAction::kFinish:
      return t.next == RequestState::kFinished ? "Finished" : "?";
    case FlowAction::kAttach:
      return t.next != RequestState::kPrefilling ? "?" : stays ? "attach" : "Prefilling+att";
    case FlowAction::kMove:
      return t.next == RequestState::kPrefilling ? "Prefilling" : "Decoding";
    case FlowAction::kDeliver:
      if (t.next == RequestState::kHandoff) return "Handoff";
      if (t.next == RequestState::kPrefilling) return stays ? "deliver" : "Prefilling+tok";
      return t.next != RequestState::kDecoding ? "?" : stays ? "deliver" : "Decoding";
  }
  return "?";
}

// "kToken" -> "token"; enumerators are named as the drawing names them.
std::string EventOf(const std::string& enumerator) {
  std::string out;
  for (const char c : enumerator.substr(1)) {
    if (c >= 'A' && c <= 'Z') {
      if (!out.empty()) out += '_';
      out += static_cast<char>(c - 'A' + 'a');
    } else {
      out += c;
    }
  }
  return out;
}

TEST(RequestStateTest, EveryCellDoesWhatTheDrawingSays) {
  std::ifstream header("router/request_state.h");
  ASSERT_TRUE(header.good());
  std::map<std::string, std::vector<std::string>> drawn;
  std::string line;
  while (std::getline(header, line) && line.rfind("//", 0) == 0) {
    std::istringstream words(line.substr(2));
    std::string event, word;
    words >> event;
    if (event.rfind("k", 0) != 0) continue;
    std::vector<std::string> row;
    while (words >> word) row.push_back(word);
    if (row.size() == 4) drawn[EventOf(event)] = row;
  }
  for (int e = 0; e < kNumFlowEvents; ++e) {
    const FlowEvent event = static_cast<FlowEvent>(e);
    const auto row = drawn.find(std::string(ToString(event)));
    ASSERT_NE(row, drawn.end()) << ToString(event);
    for (size_t s = 0; s < 4; ++s) {
      EXPECT_EQ(Word(kLive[s], event), row->second[s])
          << ToString(event) << " in " << ToString(kLive[s]);
    }
  }
}

TEST(RequestStateTest, NothingHappensAfterTheEnd) {
  for (int e = 0; e < kNumFlowEvents; ++e) {
    for (const RequestState state : {RequestState::kFinished, RequestState::kFailed}) {
      const Transition t = Next(state, static_cast<FlowEvent>(e));
      EXPECT_EQ(t.next, state);
      EXPECT_EQ(t.action, FlowAction::kIgnore);
    }
  }
}

}  // namespace
}  // namespace baton::router
