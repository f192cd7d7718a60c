// Every cell of request_state.h, driven through the core by workers that say what the line says.
#include "router/request_cells.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/cells.h"
#include "gtest/gtest.h"
#include "router/fake_worker.h"
#include "router/request_state.h"
#include "router/router_core.h"
#include "router/router_core_fixture.h"
#include "router/status_details.h"

namespace baton::router {
namespace {

using S = RequestState;
using E = FlowEvent;

constexpr uint32_t kPrompt = 20;

std::string Name(S state, E event) {
  return std::string(ToString(event)) + " in " + std::string(ToString(state));
}

enum class Kind { kSplit, kAlone, kTwoChoices };

// One request of one router with a prefill worker p and a decode worker d, or with d alone. Nobody
// answers Submit until the test says so.
class Rig : public RouterCoreTest {
 public:
  // Counts the cells it goes through in `counts`, when there is one.
  explicit Rig(Kind kind, CellCounts* counts = nullptr) : kind_(kind) {
    if (kind == Kind::kTwoChoices) spec_.n = 2;
    options_.on_transition = [this, counts](S state, E event) {
      noted.emplace_back(state, event);
      if (counts != nullptr) counts->Add("router", ToString(state), ToString(event));
    };
    if (kind != Kind::kAlone) p = &AddWorker("p", true);
    d = &AddWorker("d", false);
    Start();
    for (FakeWorker* worker : Workers()) worker->submit_answer.reset();
  }
  ~Rig() override { core_.reset(); }

  // The first token is 100 at kPrompt, the second 101. `event` decides between ways that differ.
  void Reach(S state, E event = E::kEnd) {
    const auto deadline = event == E::kEnd ? std::optional(milliseconds(900)) : std::nullopt;
    number = Ask(seen, kPrompt, 8, deadline);
    if (p == nullptr) return ReachAlone(state);
    if (kind_ == Kind::kTwoChoices) return ReachTwo(state, event);
    if (state == S::kFinished && event == E::kStarted) return ReachFinishedWithoutSink();
    if (state == S::kQueued) return;
    if (event == E::kStarted) return AnswerOk();
    p->Started(id(), *d);
    // Later states are also reached when the sink overtakes the source's first token.
    const bool overtakes = event == E::kFirstToken || event == E::kFirstTokenEnds;
    if (state >= S::kHandoff && !overtakes) p->FirstToken(id(), kPrompt, 100);
    if (state >= S::kDecoding) d->Token(id(), kPrompt, 100);
    if (state == S::kFinished) d->Token(id(), kPrompt + 1, 101, true);
    Run(milliseconds(1));
  }
  void AnswerOk() {
    (p != nullptr ? p : d)->Answer(absl::OkStatus());
    Run(milliseconds(1));
  }

  AttemptId id() const { return (p != nullptr ? p : d)->last_attempt(); }
  uint32_t next() const { return kPrompt + static_cast<uint32_t>(seen.tokens.size()); }
  void Cancel() { core_->Cancel(number, absl::CancelledError("the client went away")); }
  void RunFor(Duration time) { Run(time); }
  double Odd() { return Metric("baton_router_odd_events_total"); }

  // Calls `act`. Returns the state it led to, or "ended", then what the client and the workers were
  // told. Ends the request and checks that it is told once and that nothing is left.
  template <typename Act>
  std::string Told(Act act) {
    const Marks before = Now();
    noted.clear();
    act(*this);
    Run(milliseconds(30));  // a pause before another attempt is 20 ms
    const std::string told = Difference(before);
    driven = noted.empty() ? "nothing" : Name(noted.front().first, noted.front().second);
    return End() + told;
  }

  std::vector<FakeWorker*> Workers() const {
    return p != nullptr ? std::vector{p, d} : std::vector{d};
  }

  FakeWorker* p = nullptr;
  FakeWorker* d = nullptr;
  uint64_t number = 0;
  Seen seen;
  std::vector<std::pair<S, E>> noted;  // since the test cleared it
  std::string driven;                  // first cell that `act` went through

 private:
  struct Marks {
    size_t submits = 0, p_cancels = 0, d_cancels = 0, attaches = 0, tokens = 0;
    double odd = 0;
    int ends = 0;
  };
  void TestBody() override {}

  void ReachAlone(S state) {
    if (state == S::kQueued) return;
    d->Token(id(), kPrompt, 100);
    Run(milliseconds(1));
  }
  // The source says nothing of what the sink has sent; in kFinished one choice has two tokens.
  void ReachTwo(S state, E event) {
    if (state == S::kQueued) return;
    p->Started(id(), *d);
    const bool one_is_known = event == E::kFirstToken || event == E::kFirstTokenAgain;
    if (state == S::kHandoff || (state == S::kPrefilling && one_is_known)) {
      p->FirstToken(id(), kPrompt, 100);
    }
    if (state == S::kHandoff) p->FirstToken(id(), kPrompt, 200, false, 1);
    if (state >= S::kDecoding) d->Token(id(), kPrompt, 100);
    if (state == S::kFinished) {
      d->Token(id(), kPrompt, 200, true, 1);
      d->Token(id(), kPrompt + 1, 101, true);
    }
    Run(milliseconds(1));
  }
  // A source that samples the second token as well and ends before it named a sink: an attempt
  // after one that delivered the first.
  void ReachFinishedWithoutSink() {
    p->Started(id(), *d);
    p->FirstToken(id(), kPrompt, 100);
    d->Lost(id(), worker::v1::CAUSE_NO_ROOM);
    Run(milliseconds(30));
    p->FirstToken(id(), kPrompt + 1, 101, true);
    Run(milliseconds(1));
  }

  const Kind kind_;

  Marks Now() {
    Marks marks;
    for (const FakeWorker* worker : Workers()) marks.submits += worker->submits.size();
    if (p != nullptr) marks.p_cancels = p->cancels.size();
    marks.d_cancels = d->cancels.size();
    marks.attaches = d->attaches.size();
    marks.tokens = seen.tokens.size();
    marks.odd = Odd();
    marks.ends = seen.ends;
    return marks;
  }

  std::string Difference(const Marks& before) {
    const Marks after = Now();
    std::string text;
    const auto say = [&text](size_t times, const std::string& word) {
      for (; times > 0; --times) text += " " + word;
    };
    say(after.attaches - before.attaches, "attach");
    for (size_t i = before.tokens; i < after.tokens; ++i) {
      text += " token" + std::to_string(seen.positions[i] - kPrompt);
    }
    say(after.p_cancels - before.p_cancels, "cancel-p");
    say(after.d_cancels - before.d_cancels, "cancel-d");
    say(after.submits - before.submits, "again");
    say(static_cast<size_t>(after.odd - before.odd), "odd");
    say(after.ends - before.ends, absl::StatusCodeToString(seen.status.code()));
    return text;
  }

  // Cancels, which shows the state, and lets the workers go on talking.
  std::string End() {
    noted.clear();
    Cancel();
    Run(milliseconds(1));
    const std::string state = noted.empty() ? "ended" : std::string(ToString(noted.front().first));
    Run(milliseconds(200));
    EXPECT_EQ(seen.ends, 1);
    EXPECT_EQ(core_->live_requests(), 0u);
    EXPECT_EQ(core_->waiting_requests(), 0u);
    for (const FakeWorker* worker : Workers()) {
      EXPECT_LE(Metric("baton_router_inflight{worker=\"" + worker->options().name + "\"}"), 0);
    }
    const size_t tokens = seen.tokens.size();
    if (p != nullptr) p->FirstToken(id(), next(), 7, true);
    d->Token(id(), next(), 7, true);
    d->Lost(id(), worker::v1::CAUSE_NO_ROOM);
    Run(milliseconds(200));
    EXPECT_EQ(seen.ends, 1);
    EXPECT_EQ(seen.tokens.size(), tokens);
    return state;
  }
};

// What a line does. p is the source, d the sink, or alone.
using worker::v1::CAUSE_DEADLINE;
using worker::v1::CAUSE_INTERNAL;
using worker::v1::CAUSE_NO_ROOM;
using worker::v1::CAUSE_PEER_LOST;
using worker::v1::CAUSE_PREEMPTED;

void AnswerOk(Rig& r) { r.AnswerOk(); }
void AnswerDraining(Rig& r) { r.p->Answer(absl::UnavailableError("draining")); }
void AnswerInvalid(Rig& r) { r.p->Answer(absl::InvalidArgumentError("prompt: too long")); }
void NoAnswer(Rig& r) { r.RunFor(seconds(4)); }
void Started(Rig& r) { r.p->Started(r.id(), *r.d); }
void StartedAtALostSink(Rig& r) {
  r.d->Crash();
  Started(r);
}
void FirstToken(Rig& r) { r.p->FirstToken(r.id(), kPrompt, 100); }
void NextFirstToken(Rig& r) { r.p->FirstToken(r.id(), r.next(), 101); }
void LastFirstToken(Rig& r) { r.p->FirstToken(r.id(), r.next(), 101, true); }
void FirstTokenOfTheOther(Rig& r) { r.p->FirstToken(r.id(), kPrompt, 200, false, 1); }
void FirstTokenEndsOne(Rig& r) { r.p->FirstToken(r.id(), kPrompt, 100, true); }
void TokenOfNoChoice(Rig& r) { r.d->Token(r.id(), kPrompt, 300, false, 2); }
void Token(Rig& r) { r.d->Token(r.id(), r.next(), 102); }
void RepeatedToken(Rig& r) { r.d->Token(r.id(), kPrompt, 100); }
void LastToken(Rig& r) { r.d->Token(r.id(), r.next(), 102, true); }
void Gap(Rig& r) { r.d->Token(r.id(), r.next() + 1, 102); }
void AnotherToken(Rig& r) { r.d->Token(r.id(), kPrompt, 99); }
void EarlierTokenIsLast(Rig& r) { r.d->Token(r.id(), kPrompt, 100, true); }
void NoRoom(Rig& r) { r.p->NoRoom(r.id()); }
void SourceUnavailable(Rig& r) {
  r.p->Failed(r.id(), absl::StatusCode::kUnavailable, CAUSE_NO_ROOM);
}
void SourceInternal(Rig& r) { r.p->Failed(r.id(), absl::StatusCode::kInternal, CAUSE_INTERNAL); }
void SourceExpired(Rig& r) {
  r.p->Failed(r.id(), absl::StatusCode::kDeadlineExceeded, CAUSE_DEADLINE);
}
void SourceLostSink(Rig& r) {
  r.p->Failed(r.id(), absl::StatusCode::kUnavailable, CAUSE_PEER_LOST);
}
void SourceDies(Rig& r) { r.p->Crash(); }
void SinkRevoked(Rig& r) { r.d->Lost(r.id(), CAUSE_NO_ROOM); }
void SourcePreempted(Rig& r) {
  r.p->Failed(r.id(), absl::StatusCode::kUnavailable, CAUSE_PREEMPTED);
}
void BothPreempted(Rig& r) {
  const AttemptId id = r.id();
  r.d->Lost(id, CAUSE_PREEMPTED);
  r.p->Failed(id, absl::StatusCode::kUnavailable, CAUSE_PREEMPTED);
}
void SinkInternal(Rig& r) { r.d->Failed(r.id(), absl::StatusCode::kInternal, CAUSE_INTERNAL); }
void SinkLostSource(Rig& r) { r.d->Lost(r.id(), CAUSE_PEER_LOST); }
void SinkDies(Rig& r) { r.d->Crash(); }
void Cancel(Rig& r) { r.Cancel(); }
void CancelTwice(Rig& r) {
  r.Cancel();
  r.Cancel();
}
void Expire(Rig& r) { r.RunFor(seconds(1)); }

// What comes of it in kQueued, kPrefilling, kHandoff, kDecoding and kFinished: the state, and what
// client and workers are told. Null: the event cannot be made like this in this state.
struct Line {
  E event;
  void (*act)(Rig& r);
  std::array<const char*, 5> expected;
};

constexpr const char* kNone = nullptr;
constexpr const char* kQ = "queued cancel-p cancel-d again";
constexpr const char* kP = "prefilling";
constexpr const char* kH = "handoff";
constexpr const char* kD = "decoding";
constexpr const char* kF = "finished";
constexpr const char* kHOdd = "handoff odd";
constexpr const char* kInternal = "ended cancel-p cancel-d INTERNAL";
constexpr const char* kInvalid = "ended cancel-p cancel-d INVALID_ARGUMENT";
constexpr const char* kExhausted = "ended cancel-p cancel-d RESOURCE_EXHAUSTED";
constexpr const char* kUnavailable = "ended cancel-p cancel-d UNAVAILABLE";
constexpr const char* kSinkGone = "ended cancel-p UNAVAILABLE";
constexpr const char* kCancelled = "ended cancel-p cancel-d CANCELLED";
constexpr const char* kDeadline = "ended cancel-p cancel-d DEADLINE_EXCEEDED";

const Line kSplit[] = {
    {E::kSubmittedSplit, AnswerOk, {kP, kP, kH, kD, kF}},
    {E::kSubmitRefused, AnswerDraining, {kQ, kP, kH, kD, kF}},
    {E::kSubmitRefused, NoAnswer, {kQ, kP, kH, kD, kNone}},
    {E::kStarted, Started, {"prefilling attach", "prefilling attach", kNone, kNone, kF}},
    {E::kStarted, StartedAtALostSink, {kSinkGone, kSinkGone, kNone, kNone, kNone}},
    {E::kFirstToken, FirstToken, {kNone, "handoff token0", kNone, kD, kF}},
    {E::kFirstToken, NextFirstToken, {kNone, "handoff token0", kNone, kD, kF}},
    {E::kFirstTokenEnds, LastFirstToken, {"ended token0 OK", "ended token0 OK", kNone, kD, kF}},
    {E::kFirstTokenAgain, FirstToken, {kNone, kNone, kHOdd, kD, kF}},
    {E::kFirstTokenAgain, NextFirstToken, {kNone, kNone, kHOdd, kD, kF}},
    {E::kFirstTokenAgain, LastFirstToken, {kNone, kNone, kHOdd, kD, kF}},
    {E::kToken, Token, {kNone, "decoding token0", "decoding token1", "decoding token1", kF}},
    {E::kToken, RepeatedToken, {kNone, "decoding token0", kD, kD, kF}},
    {E::kTokenEnds,
     LastToken,
     {kNone, "ended token0 OK", "finished token1", "finished token1", kF}},
    {E::kNoRoom, NoRoom, {kQ, kQ, kHOdd, "decoding odd", kF}},
    {E::kSourceTryAgain, SourceUnavailable, {kQ, kQ, kQ, kD, kF}},
    {E::kSourceTryAgain, SourcePreempted, {kQ, kQ, kQ, kD, kF}},
    {E::kSourceFailed, SourceInternal, {kInternal, kInternal, kInternal, kD, kF}},
    {E::kSourceFailed, SourceExpired, {kDeadline, kDeadline, kDeadline, kD, kF}},
    {E::kSourceLost,
     SourceDies,
     {"queued cancel-d again", "ended cancel-d UNAVAILABLE", kH, kD, kNone}},
    {E::kSourceLost, SourceLostSink, {kQ, kUnavailable, kH, kD, kF}},
    {E::kSinkTryAgain, SinkRevoked, {kNone, kQ, kQ, kExhausted, kF}},
    {E::kSinkTryAgain, BothPreempted, {kNone, kQ, kQ, kExhausted, kF}},
    {E::kSinkFailed, SinkInternal, {kNone, kInternal, kInternal, kInternal, kF}},
    {E::kSinkFailed, AnswerInvalid, {kInvalid, kInvalid, kInvalid, kInvalid, kF}},
    {E::kSinkLost, SinkDies, {kNone, kSinkGone, kSinkGone, kSinkGone, kNone}},
    {E::kSinkLost, SinkLostSource, {kNone, kUnavailable, kUnavailable, kUnavailable, kF}},
    {E::kEnd, Cancel, {kCancelled, kCancelled, kCancelled, kCancelled, kF}},
    {E::kEnd, Expire, {kDeadline, kDeadline, kDeadline, kDeadline, kNone}},
    {E::kEnd, FirstToken, {kInternal, kNone, kNone, kNone, kNone}},  // no sink was named yet
    {E::kEnd, Gap, {kNone, kInternal, kInternal, kInternal, kNone}},
    {E::kEnd, AnotherToken, {kNone, kNone, kInternal, kInternal, kNone}},
    {E::kEnd, EarlierTokenIsLast, {kNone, kNone, kInternal, kInternal, kNone}},
};

const Line kAlone[] = {
    {E::kSubmittedAlone, AnswerOk, {kD, kNone, kNone, kD, kNone}},
    {E::kToken, Token, {"decoding token0", kNone, kNone, "decoding token1", kNone}},
    {E::kTokenEnds, LastToken, {"ended token0 OK", kNone, kNone, "ended token1 OK", kNone}},
    {E::kSinkTryAgain,
     SinkRevoked,
     {"queued cancel-d again", kNone, kNone, "ended cancel-d RESOURCE_EXHAUSTED", kNone}},
    {E::kSinkFailed,
     SinkInternal,
     {"ended cancel-d INTERNAL", kNone, kNone, "ended cancel-d INTERNAL", kNone}},
    {E::kSinkLost, SinkDies, {"ended UNAVAILABLE", kNone, kNone, "ended UNAVAILABLE", kNone}},
    {E::kEnd,
     Cancel,
     {"ended cancel-d CANCELLED", kNone, kNone, "ended cancel-d CANCELLED", kNone}},
};

const Line kTwoChoices[] = {
    {E::kFirstTokenOfSome, FirstToken, {kNone, "prefilling token0", kNone, kD, kF}},
    {E::kFirstTokenOfSome,
     FirstTokenEndsOne,
     {"prefilling token0", "prefilling token0", kNone, kNone, kNone}},
    {E::kFirstTokenAgain, FirstToken, {kNone, "prefilling odd", kHOdd, kNone, kNone}},
    {E::kFirstToken, FirstTokenOfTheOther, {kNone, "handoff token0", kNone, kNone, kNone}},
    {E::kToken, Token, {kNone, kNone, kNone, "decoding token1", kNone}},
    {E::kEnd, TokenOfNoChoice, {kNone, kInternal, kInternal, kInternal, kNone}},
    {E::kEnd, Cancel, {kCancelled, kCancelled, kCancelled, kCancelled, kF}},
};

void Drive(const Line& line, Kind kind, CellCounts& counts) {
  for (size_t s = 0; s < line.expected.size(); ++s) {
    if (line.expected[s] == nullptr) continue;
    const auto state = static_cast<S>(s);
    SCOPED_TRACE(Name(state, line.event) + " -> " + line.expected[s]);
    Rig rig(kind, &counts);
    rig.Reach(state, line.event);
    EXPECT_EQ(rig.Told(line.act), line.expected[s]);
    EXPECT_EQ(rig.driven, Name(state, line.event));
  }
}

TEST(RequestCellsTest, EveryCellDoesWhatItsLineSays) {
  CellCounts counts;
  for (const Line& line : kSplit) Drive(line, Kind::kSplit, counts);
  for (const Line& line : kAlone) Drive(line, Kind::kAlone, counts);
  for (const Line& line : kTwoChoices) Drive(line, Kind::kTwoChoices, counts);
  // The second time in the turn of the first: end in failed.
  Rig rig(Kind::kSplit, &counts);
  rig.Reach(S::kPrefilling);
  EXPECT_EQ(rig.Told(CancelTwice), kCancelled);
  EXPECT_EQ(counts.Problems({RequestCells()}, "su"), "");
}

// The marks and the code agree on what is impossible.
TEST(RequestCellsTest, TheMarksKnowWhatTheTableExcludes) {
  for (int e = 0; e < kNumFlowEvents; ++e) {
    for (const S state : {S::kQueued, S::kPrefilling, S::kHandoff, S::kDecoding}) {
      const auto event = static_cast<E>(e);
      const bool impossible = Next(state, event).action == FlowAction::kImpossible;
      EXPECT_EQ(RequestCells().Mark(ToString(state), ToString(event)) == '-', impossible)
          << Name(state, event);
    }
  }
}

// Everything a worker can say of an attempt.
void SayEverything(Rig& rig, FakeWorker& worker, const AttemptId& id) {
  worker.Started(id, *rig.d);
  worker.CachedPrompt(id, kPrompt / 2);
  worker.FirstToken(id, rig.next(), 50);
  worker.FirstToken(id, rig.next(), 50, true);
  worker.Token(id, rig.next(), 50);
  worker.Token(id, rig.next(), 50, true);
  worker.HandedOff(id, milliseconds(1), 1);
  worker.NoRoom(id);
  worker.Lost(id, worker::v1::CAUSE_NO_ROOM);
  worker.Failed(id, absl::StatusCode::kInternal, worker::v1::CAUSE_INTERNAL);
  rig.RunFor(milliseconds(30));
}

constexpr S kLive[] = {S::kQueued, S::kPrefilling, S::kHandoff, S::kDecoding, S::kFinished};

TEST(RequestCellsTest, OtherAttemptsAndOtherRequestsChangeNothingInAnyState) {
  for (const S state : kLive) {
    SCOPED_TRACE(ToString(state));
    Rig rig(Kind::kSplit);
    rig.Reach(state);
    const size_t tokens = rig.seen.tokens.size();
    AttemptId older = rig.id(), unknown = rig.id(), foreign = rig.id();
    --older.attempt;
    unknown.request += 100;
    foreign.router = Epoch{6, 6};
    rig.noted.clear();
    for (FakeWorker* worker : rig.Workers()) {
      worker->cancels.clear();
      for (const AttemptId& id : {older, unknown, foreign}) SayEverything(rig, *worker, id);
    }
    EXPECT_TRUE(rig.noted.empty());
    EXPECT_EQ(rig.seen.tokens.size(), tokens);
    EXPECT_EQ(rig.seen.ends, state == S::kFinished ? 1 : 0);  // the report did not come
    // Work of ours that is over is cancelled where it goes on; another router's is not ours to end.
    for (const FakeWorker* worker : rig.Workers()) {
      EXPECT_GE(std::count(worker->cancels.begin(), worker->cancels.end(), older), 3);
      EXPECT_GE(std::count(worker->cancels.begin(), worker->cancels.end(), unknown), 3);
      EXPECT_EQ(std::count(worker->cancels.begin(), worker->cancels.end(), foreign), 0);
    }
    EXPECT_EQ(rig.Odd(), 20);
  }
}

TEST(RequestCellsTest, WhatAWorkerInThisPartDoesNotSayIsOddAndChangesNothing) {
  for (const S state : {S::kPrefilling, S::kHandoff, S::kDecoding, S::kFinished}) {
    SCOPED_TRACE(ToString(state));
    Rig rig(Kind::kSplit);
    rig.Reach(state);
    rig.noted.clear();
    const AttemptId id = rig.id();
    rig.d->Started(id, *rig.d);
    rig.d->FirstToken(id, rig.next(), 50);
    rig.d->HandedOff(id, milliseconds(7), 1);
    rig.d->CachedPrompt(id, kPrompt / 2);
    rig.d->NoRoom(id);
    rig.p->Token(id, rig.next(), 50);
    rig.p->Started(id, *rig.d);  // it has said so before
    EXPECT_EQ(rig.Told([](Rig&) {}).rfind(ToString(state), 0), 0u);
    EXPECT_EQ(rig.Odd(), 7);
    EXPECT_EQ(rig.seen.summary.cached_tokens, 0u);
    EXPECT_EQ(rig.d->attaches.size(), 1u);
    EXPECT_NE(rig.seen.summary.timings.handoff, Duration(milliseconds(7)));
  }
}

// What was found is in the usage, whenever the event comes and whatever earlier attempts found.
TEST(RequestCellsTest, TheCachedPromptOfTheAttemptThatEndsIsReported) {
  for (const S state : {S::kQueued, S::kPrefilling, S::kHandoff, S::kDecoding, S::kFinished}) {
    SCOPED_TRACE(ToString(state));
    Rig rig(Kind::kSplit);
    rig.Reach(state);
    rig.p->CachedPrompt(rig.id(), 16);
    rig.p->CachedPrompt(rig.id(), kPrompt);  // the last token is always computed
    rig.RunFor(milliseconds(1));
    EXPECT_EQ(rig.Told([](Rig&) {}).rfind(ToString(state), 0), 0u);
    EXPECT_EQ(rig.seen.summary.cached_tokens, 16u);
    EXPECT_EQ(rig.Odd(), 1);
  }
}

TEST(RequestCellsTest, AnotherAttemptForgetsWhatTheOneBeforeFound) {
  for (const S state : {S::kQueued, S::kPrefilling, S::kHandoff}) {
    for (const uint32_t found : {0u, 8u}) {
      SCOPED_TRACE(std::string(ToString(state)) + " " + std::to_string(found));
      Rig rig(Kind::kSplit);
      rig.Reach(state);
      rig.p->CachedPrompt(rig.id(), 16);
      rig.p->Failed(rig.id(), absl::StatusCode::kUnavailable, CAUSE_NO_ROOM);
      rig.RunFor(milliseconds(30));
      EXPECT_EQ(rig.id().attempt, 2u);
      if (found > 0) rig.p->CachedPrompt(rig.id(), found);
      rig.RunFor(milliseconds(1));
      rig.Told(Cancel);
      EXPECT_EQ(rig.seen.summary.cached_tokens, found);
      EXPECT_EQ(rig.Odd(), 0);
    }
  }
}

TEST(RequestCellsTest, AWorkerThatRunsARequestAloneSaysWhatItFound) {
  for (const S state : {S::kQueued, S::kDecoding}) {
    SCOPED_TRACE(ToString(state));
    Rig rig(Kind::kAlone);
    rig.Reach(state);
    rig.d->CachedPrompt(rig.id(), 16);
    rig.RunFor(milliseconds(1));
    rig.Told(Cancel);
    EXPECT_EQ(rig.seen.summary.cached_tokens, 16u);
    EXPECT_EQ(rig.Odd(), 0);
  }
}

}  // namespace
}  // namespace baton::router
