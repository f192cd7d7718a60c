// Every cell of prefill_state.h, driven through the worker's core: the router, the sinks' sessions
// and the data connections say what the line says in the moment it says so.
#include "prefill_worker/prefill_cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/cells.h"
#include "engine/engine_fixture.h"
#include "kvtransfer/cause.h"
#include "kvtransfer/in_process_transport.h"
#include "kvtransfer/scripted_sinks.h"
#include "prefill_worker/prefill_state.h"
#include "proto/mapping/ids.h"
#include "worker/test_rig.h"

namespace baton::worker {
namespace {

using S = PrefillState;
using E = PrefillEvent;
using std::chrono::milliseconds;
using std::chrono::seconds;

const AttemptId kId = RigAttempt(1);
constexpr uint32_t kGroups = 2;             // of KV
constexpr Duration kPatience = seconds(2);  // at each of two sinks

std::string Label(int cause) { return std::string(kvtransfer::CauseLabel(v1::Cause(cause))); }

// A prefill worker between a router and two sinks that only do what the test says. What the worker
// posts to itself runs 2 ms later, so that states which last one turn can be met.
class Rig {
 public:
  explicit Rig(CellCounts* counts = nullptr) {
    RigWorker::Options options;
    options.role = v1::ROLE_PREFILL;
    options.name = "prefill";
    options.reserve_patience = 2 * kPatience;
    options.step_tokens = 16;
    options.model.step_cost = milliseconds(30);
    options.model.nan = [this](const engine::StepItem& item) {
      return nan_ && !item.samples.empty();
    };
    options.dialer = &sinks;
    options.transport = &sinks;
    options.on_event = [this, counts](std::string_view machine, std::string_view state,
                                      std::string_view event) {
      if (machine != "prefill") return;
      noted.push_back(std::string(event) + " in " + std::string(state));
      if (counts != nullptr) counts->Add(machine, state, event);
    };
    worker = std::make_unique<RigWorker>(world, network, no_sinks_, options);
    router = std::make_unique<RigSession>(world, *worker);
    router->on_event = [this](const v1::WorkerEvent& event) { Hear(event); };
    world.RunFor(milliseconds(1));
    router->at_once = true;
    worker->executor.set_post_delay(milliseconds(2));
    for (uint64_t i = 1; i <= 2; ++i) sinks.Add("sink-" + std::to_string(i), {77, i});
  }
  ~Rig() {
    router.reset();
    worker.reset();
  }

  // `event` decides between ways that differ. A prompt of two chunks and two blocks.
  void Reach(S state, E event) {
    nan_ = event == E::kSequenceFailed;
    max_tokens_ = event == E::kFirstTokenEnds ? 1 : 10;
    if (event == E::kDeadline) remaining_ = DeadlineFor(state);
    ASSERT_TRUE(Submit(*router).ok());
    if (state != S::kQueued) {
      Walk(state, event);
      Run();
    }
    ASSERT_EQ(this->state(), state);
  }
  absl::Status Submit(RigSession& from) {
    DecoderState out = engine::FixtureState(engine::FixturePrompt(20, 3), max_tokens_, 3);
    out.attempt = kId;
    out.remaining = remaining_;
    std::vector<v1::Sink> named(2);
    for (uint64_t i = 0; i < named.size(); ++i) {
      named[i].set_address("sink-" + std::to_string(i + 1));
      proto::Set(Epoch{77, i + 1}, *named[i].mutable_epoch());
    }
    return from.Submit(out, named);
  }
  std::optional<S> state() const { return worker->prefill->state(kId); }

  // Everything that is due now; sinks that were reached answer.
  void Run() {
    world.RunFor(Duration(0));
    sinks.Answer(take_data);
    world.RunFor(Duration(0));
  }
  void RunTo(E event) {
    const std::string name = std::string(ToString(event)) + " in ";
    const size_t from = noted.size();
    const auto seen = [&] {
      return std::any_of(noted.begin() + static_cast<ptrdiff_t>(from), noted.end(),
                         [&](const std::string& cell) { return cell.rfind(name, 0) == 0; });
    };
    EXPECT_TRUE(world.RunUntilTrue(seen, world.now() + seconds(10))) << name;
  }

  // Calls `act`. Returns the state it led to and what the sinks and the router were told; then ends
  // the attempt and checks that the router heard of one end at most and that nothing is left.
  template <typename Act>
  std::string Told(Act act) {
    noted.clear();
    told_.clear();
    act(*this);
    Run();
    driven = noted;
    const std::string state =
        this->state().has_value() ? std::string(ToString(*this->state())) : "gone";
    const std::string out = state + told_;
    End();
    return out;
  }

  SimWorld world;
  kvtransfer::InProcessNetwork network;
  kvtransfer::ScriptedSinks sinks{[this](const std::string& word) { Say(word); }};
  bool take_data = true;  // the sinks' data connections can be made
  std::unique_ptr<RigWorker> worker;
  std::unique_ptr<RigSession> router;
  std::vector<std::string> noted;   // cells
  std::vector<std::string> driven;  // those that `act` went through

 private:
  static Duration DeadlineFor(S state) {
    if (state == S::kQueued) return Duration(0);
    if (state == S::kLeaving) return kPatience + milliseconds(1);
    return state == S::kCommitting ? Duration(seconds(1)) : Duration(milliseconds(5));
  }

  void Walk(S state, E event) {
    Run();
    if (state == S::kReserving) return;
    if (state == S::kWaiting || state == S::kLeaving) {
      sinks.last().Wait(kId);
      if (state == S::kLeaving) RunTo(E::kPatience);
      return;
    }
    sinks.last().Grant(kId, kGroups);
    if (state == S::kRunning) return;
    const bool ending = state == S::kEnding;
    if (!ending || event == E::kCommitted) RunTo(E::kFirstToken);
    if (!ending) return;
    // What the sink said is known to the source, which still waits for the connection.
    if (event == E::kCommitted) sinks.last().ReplyToCommit(kId, v1::CAUSE_UNSPECIFIED);
    if (event == E::kBroken) sinks.last().Revoke(kId, v1::CAUSE_NO_ROOM);
    router->Cancel(kId);
  }

  // Repeated words count once.
  void Say(const std::string& word) {
    const std::string next = " " + word;
    const bool again = told_.size() >= next.size() &&
                       told_.compare(told_.size() - next.size(), next.size(), next) == 0;
    if (!again) told_ += next;
  }
  void Hear(const v1::WorkerEvent& event) {
    if (event.has_started()) Say("started(" + event.started().sink_address() + ")");
    if (event.has_first_token()) {
      const bool last = event.first_token().token().finish_reason() != 0;
      Say(last ? "last" : "first");
      ends_ += last ? 1 : 0;
    }
    if (event.has_handed_off()) End("handed_off");
    if (event.has_no_room()) {
      const bool preempted = event.no_room().cause() == v1::CAUSE_PREEMPTED;
      End(preempted ? "no_room(preempted)" : "no_room");
    }
    if (event.has_failed()) End("failed(" + Label(event.failed().cause()) + ")");
  }
  void End(const std::string& word) {
    Say(word);
    ++ends_;
  }

  void End() {
    world.RunFor(milliseconds(5));
    router->Cancel(kId);
    world.RunFor(milliseconds(5));
    if (state().has_value()) sinks.last().CloseTransfer(kId);
    noted.clear();
    Repeat();
    world.RunFor(seconds(2));
    EXPECT_TRUE(noted.empty()) << noted.front();
    EXPECT_EQ(state(), std::nullopt);
    EXPECT_LE(ends_, 1);
    EXPECT_TRUE(worker->core->idle());
    EXPECT_TRUE(worker->all_free());
    EXPECT_TRUE(worker->core->pool().CheckIntegrity().ok());
    RigSession again(world, *worker, kTestRouter, 2);
    world.RunFor(milliseconds(5));
    EXPECT_EQ(Submit(again).message().rfind(kReasonTombstone, 0), 0u);
  }
  // Late words about an attempt that is gone.
  void Repeat() {
    for (const size_t i : {0, 1}) {
      sinks.sink(i).Grant(kId, kGroups);
      sinks.sink(i).Revoke(kId, v1::CAUSE_NO_ROOM);
      sinks.sink(i).ReplyToCommit(kId, v1::CAUSE_UNSPECIFIED);
      sinks.sink(i).CloseTransfer(kId);
    }
    router->Cancel(kId);
  }

  bool nan_ = false;
  uint32_t max_tokens_ = 10;
  std::optional<Duration> remaining_;
  std::string told_;
  int ends_ = 0;
  RigSinks no_sinks_;
};

// What a line does.
void Run(Rig& r) { r.Run(); }
void Wait(Rig& r) { r.sinks.last().Wait(kId); }
void Grant(Rig& r) { r.sinks.last().Grant(kId, kGroups); }
void Refuse(Rig& r) { r.sinks.last().Refuse(kId, v1::CAUSE_NO_ROOM); }
void RefuseTwice(Rig& r) {
  Refuse(r);
  r.Run();
  Refuse(r);
}
void GrantWithoutData(Rig& r) {
  r.sinks.last().EndData();
  r.take_data = false;
  Grant(r);
}
// Taken back while the data connection is made.
void GrantAndPreempt(Rig& r) {
  r.sinks.last().EndData();
  Grant(r);
  r.sinks.last().Revoke(kId, v1::CAUSE_PREEMPTED);
}
void GrantAndPreemptThenRefuse(Rig& r) {
  GrantAndPreempt(r);
  r.Run();
  Refuse(r);
}
void Revoke(Rig& r) { r.sinks.last().Revoke(kId, v1::CAUSE_NO_ROOM); }
void EndSession(Rig& r) { r.sinks.last().EndSession(); }
void EndData(Rig& r) { r.sinks.last().EndData(); }
void SayCommitted(Rig& r) { r.sinks.last().ReplyToCommit(kId, v1::CAUSE_UNSPECIFIED); }
void Close(Rig& r) { r.sinks.last().CloseTransfer(kId); }
void RevokeAndClose(Rig& r) {
  Revoke(r);
  Close(r);
}
void CommitAndClose(Rig& r) {
  SayCommitted(r);
  Close(r);
}
void CommitTwiceAndClose(Rig& r) {
  SayCommitted(r);
  CommitAndClose(r);
}
void RefuseCommitAndClose(Rig& r) {
  r.sinks.last().ReplyToCommit(kId, v1::CAUSE_MISSING_PIECE);
  Close(r);
}
void Cancel(Rig& r) { r.router->Cancel(kId); }
void Lose(Rig& r) { r.router->Crash(); }
template <E event>
void Await(Rig& r) {
  r.RunTo(event);
}

struct Line {
  S state;
  E event;
  void (*act)(Rig& r);
  const char* expected;  // the state it leads to, and what the sinks and the router are told
};

const Line kLines[] = {
    {S::kQueued, E::kRoom, Run, "Reserving reserve(sink-1)"},
    {S::kReserving, E::kWaitAnswer, Wait, "Waiting"},
    {S::kReserving, E::kGranted, Grant, "Running open started(sink-1)"},
    {S::kWaiting, E::kGranted, Grant, "Running open started(sink-1)"},

    {S::kReserving, E::kNotGranted, Refuse, "Reserving reserve(sink-2)"},
    {S::kReserving, E::kNotGranted, RefuseTwice, "gone reserve(sink-2) no_room"},
    {S::kReserving, E::kNotGranted, EndSession, "Reserving reserve(sink-2)"},
    {S::kReserving, E::kNotGranted, Revoke, "Reserving reserve(sink-2)"},
    {S::kReserving, E::kNotGranted, GrantWithoutData,
     "Reserving release(sink-1,peer_lost) reserve(sink-2)"},
    {S::kReserving, E::kNotGranted, GrantAndPreempt, "Reserving reserve(sink-2)"},
    {S::kReserving, E::kNotGranted, GrantAndPreemptThenRefuse,
     "gone reserve(sink-2) no_room(preempted)"},
    {S::kWaiting, E::kNotGranted, Refuse, "Reserving reserve(sink-2)"},
    {S::kWaiting, E::kNotGranted, Wait, "Reserving reserve(sink-2)"},

    {S::kReserving, E::kPatience, Await<E::kPatience>, "Leaving release(sink-1)"},
    {S::kWaiting, E::kPatience, Await<E::kPatience>, "Leaving release(sink-1)"},
    {S::kLeaving, E::kReleased, Await<E::kReleased>, "Reserving reserve(sink-2)"},

    {S::kRunning, E::kLayerReady, Await<E::kLayerReady>, "Running send"},
    {S::kRunning, E::kFirstToken, Await<E::kFirstToken>, "Committing send commit first"},
    {S::kRunning, E::kFirstTokenEnds, Await<E::kFirstTokenEnds>,
     "Ending send release(sink-1) close last"},
    {S::kRunning, E::kSequenceFailed, Await<E::kSequenceFailed>,
     "Ending send release(sink-1) close failed(internal)"},

    {S::kRunning, E::kBroken, RevokeAndClose, "gone close failed(no_room)"},
    {S::kRunning, E::kBroken, EndSession, "gone failed(peer_lost)"},
    {S::kRunning, E::kBroken, EndData, "gone release(sink-1,peer_lost) failed(peer_lost)"},
    {S::kRunning, E::kBroken, Grant, "gone failed(malformed)"},
    {S::kRunning, E::kBroken, SayCommitted, "gone failed(malformed)"},
    {S::kCommitting, E::kBroken, RefuseCommitAndClose, "gone close"},
    {S::kCommitting, E::kBroken, RevokeAndClose, "gone close"},
    {S::kCommitting, E::kBroken, EndSession, "gone"},
    {S::kCommitting, E::kBroken, EndData, "gone release(sink-1,peer_lost)"},
    {S::kCommitting, E::kBroken, Grant, "gone"},
    {S::kCommitting, E::kCommitted, CommitAndClose, "gone close handed_off"},
    {S::kCommitting, E::kCommitted, CommitTwiceAndClose, "gone close handed_off"},

    {S::kEnding, E::kCommitted, Close, "gone"},
    {S::kEnding, E::kBroken, Close, "gone"},
    {S::kEnding, E::kReleased, Close, "gone"},
    {S::kEnding, E::kReleased, EndSession, "gone"},
    {S::kEnding, E::kReleased, EndData, "gone"},

    {S::kQueued, E::kDeadline, Await<E::kDeadline>, "gone failed(deadline)"},
    {S::kReserving, E::kDeadline, Await<E::kDeadline>, "Ending release(sink-1) failed(deadline)"},
    {S::kWaiting, E::kDeadline, Await<E::kDeadline>, "Ending release(sink-1) failed(deadline)"},
    {S::kLeaving, E::kDeadline, Await<E::kDeadline>, "Ending failed(deadline)"},
    {S::kRunning, E::kDeadline, Await<E::kDeadline>,
     "Ending release(sink-1) close failed(deadline)"},
    {S::kCommitting, E::kDeadline, Await<E::kDeadline>, "Ending release(sink-1) close"},

    {S::kQueued, E::kCancel, Cancel, "gone"},
    {S::kReserving, E::kCancel, Cancel, "Ending release(sink-1)"},
    {S::kWaiting, E::kCancel, Cancel, "Ending release(sink-1)"},
    {S::kLeaving, E::kCancel, Cancel, "Ending"},
    {S::kRunning, E::kCancel, Cancel, "Ending release(sink-1) close"},
    {S::kCommitting, E::kCancel, Cancel, "Ending release(sink-1) close"},
    {S::kEnding, E::kCancel, Cancel, "Ending"},

    {S::kQueued, E::kRouterLost, Lose, "gone"},
    {S::kReserving, E::kRouterLost, Lose, "Ending release(sink-1,peer_lost)"},
    {S::kWaiting, E::kRouterLost, Lose, "Ending release(sink-1,peer_lost)"},
    {S::kLeaving, E::kRouterLost, Lose, "Ending"},
    {S::kRunning, E::kRouterLost, Lose, "Ending release(sink-1,peer_lost) close"},
    {S::kCommitting, E::kRouterLost, Lose, "Ending release(sink-1,peer_lost) close"},
    {S::kEnding, E::kRouterLost, Lose, "Ending"},
};

std::string Name(S state, E event) {
  return std::string(ToString(event)) + " in " + std::string(ToString(state));
}

TEST(PrefillCellsTest, EveryCellDoesWhatItsLineSays) {
  CellCounts counts;
  for (const Line& line : kLines) {
    SCOPED_TRACE(Name(line.state, line.event) + " -> " + line.expected);
    Rig rig(&counts);
    rig.Reach(line.state, line.event);
    EXPECT_EQ(rig.Told(line.act), line.expected);
    EXPECT_NE(std::find(rig.driven.begin(), rig.driven.end(), Name(line.state, line.event)),
              rig.driven.end());
  }
  EXPECT_EQ(counts.Problems({PrefillCells()}, "su"), "");
}

TEST(PrefillCellsTest, TheDrawingAndTheMarksAgree) {
  std::ifstream header("prefill_worker/prefill_state.h");
  std::ostringstream text;
  text << header.rdbuf();
  EXPECT_EQ(DrawingProblems(PrefillCells(), text.str()), "");
}

TEST(PrefillCellsTest, ARouterThatRepeatsItselfChangesNothingInAnyState) {
  for (int s = 0; s < kNumPrefillStates; ++s) {
    const auto state = static_cast<S>(s);
    SCOPED_TRACE(ToString(state));
    Rig rig;
    rig.Reach(state, E::kCancel);
    rig.noted.clear();
    EXPECT_EQ(rig.Submit(*rig.router).code(), absl::StatusCode::kAlreadyExists);
    rig.router->Attach(kId);  // to the wrong worker
    EXPECT_TRUE(rig.noted.empty());
    EXPECT_EQ(rig.Told([](Rig&) {}).rfind(ToString(state), state == S::kQueued ? 99 : 0),
              state == S::kQueued ? std::string::npos : 0u);
  }
}

TEST(PrefillCellsTest, ASinkThatWasLeftHasNoSayAnyMore) {
  for (const S state : {S::kReserving, S::kRunning}) {
    SCOPED_TRACE(ToString(state));
    Rig rig;
    rig.Reach(S::kReserving, E::kCancel);
    Refuse(rig);
    rig.Run();
    if (state == S::kRunning) Grant(rig);
    rig.noted.clear();
    kvtransfer::ScriptedSink& left = rig.sinks.sink(0);
    left.Grant(kId, kGroups);
    left.Revoke(kId, v1::CAUSE_NO_ROOM);
    left.ReplyToCommit(kId, v1::CAUSE_UNSPECIFIED);
    left.EndSession();
    EXPECT_TRUE(rig.noted.empty());
    EXPECT_EQ(rig.state(), state);
    rig.Told([](Rig&) {});
  }
}

}  // namespace
}  // namespace baton::worker
