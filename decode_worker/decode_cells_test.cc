// Every cell of decode_state.h, driven through the worker's core: the router, the source and its
// data connection say what the line says in the moment it says so.
#include "decode_worker/decode_cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "baton/transfer/v1/transfer.pb.h"
#include "common/cells.h"
#include "common/hash.h"
#include "decode_worker/decode_state.h"
#include "engine/engine_fixture.h"
#include "kv/block_pool.h"
#include "kvtransfer/cause.h"
#include "kvtransfer/in_process_transport.h"
#include "kvtransfer/scripted_source.h"
#include "proto/mapping/decoder_state.h"
#include "proto/mapping/ids.h"
#include "worker/test_rig.h"

namespace baton::worker {
namespace {

using S = DecodeState;
using E = DecodeEvent;
using kvtransfer::ScriptedSource;
using std::chrono::milliseconds;
using std::chrono::seconds;
using transfer::v1::SessionResponse;

const AttemptId kId = RigAttempt(1);
constexpr uint32_t kBlocks = 16;       // of the pool
constexpr uint32_t kPromptBlocks = 2;  // 20 tokens

std::string Label(int cause) {
  return std::string(kvtransfer::CauseLabel(static_cast<v1::Cause>(cause)));
}
std::string Name(S state, E event) {
  return std::string(ToString(event)) + " in " + std::string(ToString(state));
}

// A decode worker between a router and a source that only do what the test says.
class Rig {
 public:
  explicit Rig(CellCounts* counts = nullptr) {
    RigWorker::Options options;
    options.blocks = kBlocks;
    options.model.step_cost = milliseconds(100);
    options.model.nan = [this](const engine::StepItem& item) {
      return nan_ && !item.samples.empty();
    };
    options.on_event = [this, counts](std::string_view machine, std::string_view state,
                                      std::string_view event) {
      if (machine != "decode") return;
      noted.push_back(std::string(event) + " in " + std::string(state));
      if (counts != nullptr) counts->Add(machine, state, event);
    };
    worker = std::make_unique<RigWorker>(world, network, sinks, options);
    router = std::make_unique<RigSession>(world, *worker);
    router->on_event = [this](const v1::WorkerEvent& event) { Hear(event); };
    world.RunFor(milliseconds(1));
    router->at_once = true;
    source = OpenSource({55, 5});
  }
  ~Rig() {
    source.reset();
    hog_ = {};
    router.reset();
    worker.reset();
  }

  std::unique_ptr<ScriptedSource> OpenSource(const Epoch& epoch) {
    const WorkerOptions& options = worker->core->options();
    return std::make_unique<ScriptedSource>(
        worker->decode->sink(), *worker->table,
        ScriptedSource::Options{epoch, options.epoch, options.layout_fp, options.numerics_id});
  }

  // `event` decides between ways that differ.
  void Reach(S state, E event) {
    nan_ = event == E::kSequenceFailed;
    if (event == E::kDeadline) remaining_ = DeadlineFor(state);
    if (event == E::kUnattached && state == S::kGenerating) max_tokens_ = 200;
    if (event == E::kLastToken || state == S::kKept) max_tokens_ = 2;
    if (state == S::kQueued) hog_ = *worker->core->context().room.pool().Take({kBlocks, kBlocks});
    Reserve(*source);
    Run();
    if (state == S::kGenerating || state == S::kKept) {
      ShipAndCommit(Committed());
      Run();
    }
    if (state == S::kKept) RunTo(E::kLastToken);
    if (state == S::kQuiescing) {
      source->Enter(kId);
      source->Release(kId);
    }
    Run();
    ASSERT_EQ(this->state(), state);
  }
  std::optional<S> state() const { return worker->decode->state(kId); }

  // Everything that is due now.
  void Run() {
    world.RunFor(Duration(0));
    for (; heard_ < source->heard.size(); ++heard_) Hear(source->heard[heard_]);
    for (const uint32_t cause : source->TakeReplies()) {
      Say(cause == 0 ? "committed" : "commit_refused(" + Label(static_cast<int>(cause)) + ")");
    }
  }
  void RunTo(E event) {
    const std::string name = std::string(ToString(event)) + " in ";
    const size_t from = noted.size();
    const auto seen = [&] {
      return std::any_of(noted.begin() + static_cast<ptrdiff_t>(from), noted.end(),
                         [&](const std::string& cell) { return cell.rfind(name, 0) == 0; });
    };
    EXPECT_TRUE(world.RunUntilTrue(seen, world.now() + seconds(30))) << name;
  }

  DecoderState State() const {
    DecoderState state = engine::FixtureState(engine::FixturePrompt(20, 3), max_tokens_, 3);
    state.attempt = kId;
    return state;
  }
  void Reserve(ScriptedSource& from) {
    const DecoderState state = State();
    transfer::v1::Reserve reserve;
    proto::Set(kId, *reserve.mutable_attempt());
    reserve.mutable_prompt()->Assign(state.prompt.begin(), state.prompt.end());
    reserve.set_n(1);
    reserve.set_max_tokens(max_tokens_);
    if (remaining_.has_value()) reserve.set_remaining_ns(remaining_->count());
    from.Reserve(reserve);
  }
  absl::Status Commit(const DecoderState& state) {
    return source->Commit(kId, {TokenChainHash(State().prompt), proto::Serialize(state)});
  }
  DecoderState Committed() const {
    DecoderState state = State();
    state.choices[0].tokens = {1};
    return state;
  }
  void ShipAndCommit(const DecoderState& state) {
    source->Ship(kId, kPromptBlocks);
    EXPECT_TRUE(Commit(state).ok());
  }
  void FreeTheHog() { hog_ = {}; }

  // Calls `act`. Returns the state it led to and what the source and the router were told; then
  // ends the attempt and checks that the router heard of one end at most and that nothing is left.
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
  RigSinks sinks;
  std::unique_ptr<RigWorker> worker;
  std::unique_ptr<RigSession> router;
  std::unique_ptr<ScriptedSource> source;
  std::vector<std::string> noted;   // cells
  std::vector<std::string> driven;  // those that `act` went through

 private:
  static Duration DeadlineFor(S state) {
    if (state == S::kKept) return seconds(1);
    return state == S::kGenerating ? milliseconds(50) : milliseconds(5);
  }

  // Repeated words count once.
  void Say(const std::string& word) {
    const std::string next = " " + word;
    const bool again = told_.size() >= next.size() &&
                       told_.compare(told_.size() - next.size(), next.size(), next) == 0;
    if (!again) told_ += next;
  }
  void Hear(const SessionResponse& message) {
    if (message.has_granted()) Say("granted");
    if (message.has_wait()) Say("wait");
    if (message.has_refused()) Say("refused(" + Label(message.refused().cause()) + ")");
    if (message.has_revoked()) Say("revoked(" + Label(message.revoked().cause()) + ")");
  }
  void Hear(const v1::WorkerEvent& event) {
    if (event.has_token()) {
      const bool last = event.token().finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
      Say(last ? "last" : "token");
      ends_ += last ? 1 : 0;
    }
    if (event.has_lost()) Say("lost(" + Label(event.lost().cause()) + ")");
    if (event.has_failed()) Say("failed(" + Label(event.failed().cause()) + ")");
    ends_ += event.has_lost() || event.has_failed() ? 1 : 0;
  }

  void End() {
    source->Leave();
    hog_ = {};
    router->Cancel(kId);
    world.RunFor(milliseconds(5));
    noted.clear();
    if (source->alive()) source->Release(kId);
    router->Cancel(kId);
    world.RunFor(seconds(2));
    EXPECT_EQ(state(), std::nullopt);
    EXPECT_TRUE(noted.empty()) << noted.front();
    EXPECT_LE(ends_, 1);
    EXPECT_TRUE(worker->core->idle());
    EXPECT_TRUE(worker->all_free());
    EXPECT_EQ(worker->decode->sink().live(), 0u);
    EXPECT_TRUE(worker->core->pool().CheckIntegrity().ok());
    ExpectTombstone();
  }
  // Nobody waits for it: Reserve and Attach are answered.
  void ExpectTombstone() {
    RigSession again(world, *worker, kTestRouter, 2);
    world.RunFor(milliseconds(1));
    const auto other = OpenSource({66, 6});
    Reserve(*other);
    EXPECT_EQ(other->heard.back().refused().cause(), v1::CAUSE_TOMBSTONE);
    again.Attach(kId);
    world.RunFor(milliseconds(1));
    const std::vector<v1::WorkerEvent> events = again.EventsOf(kId);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].lost().cause(), v1::CAUSE_TOMBSTONE);
  }

  bool nan_ = false;
  uint32_t max_tokens_ = 100;
  std::optional<Duration> remaining_;
  std::string told_;
  size_t heard_ = 0;
  int ends_ = 0;
  kv::BlockLease hog_;
};

// What a line does.
void Reserve(Rig& r) { r.Reserve(*r.source); }
void FreeTheHog(Rig& r) { r.FreeTheHog(); }
void Attach(Rig& r) { r.router->Attach(kId); }
void Cancel(Rig& r) { r.router->Cancel(kId); }
void Lose(Rig& r) { r.router->Crash(); }
template <E event>
void Await(Rig& r) {
  r.RunTo(event);
}
template <E event>
void AttachAndAwait(Rig& r) {
  Attach(r);
  r.RunTo(event);
}
void FailAndAttach(Rig& r) {
  r.RunTo(E::kSequenceFailed);
  Attach(r);
}

void Commit(Rig& r) { r.ShipAndCommit(r.Committed()); }
void AttachAndCommit(Rig& r) {
  Attach(r);
  Commit(r);
}
void CommitMoreTokensThanReserved(Rig& r) {
  DecoderState state = r.Committed();
  ++state.stop.max_tokens;
  r.ShipAndCommit(state);
}
void CommitAnotherAttempt(Rig& r) {
  DecoderState state = r.Committed();
  ++state.attempt.attempt;
  r.ShipAndCommit(state);
}
void CommitWithoutFirstToken(Rig& r) { r.ShipAndCommit(r.State()); }
void CommitWithoutPieces(Rig& r) { EXPECT_TRUE(r.Commit(r.Committed()).ok()); }
void CommitAnotherPrompt(Rig& r) {
  r.source->Ship(kId, kPromptBlocks);
  EXPECT_TRUE(r.source->Commit(kId, {Digest{1, 2}, proto::Serialize(r.Committed())}).ok());
}

void Release(Rig& r) { r.source->Release(kId); }
void ReleaseForLostRouter(Rig& r) { r.source->Release(kId, v1::CAUSE_PEER_LOST); }
void CloseAndReleaseForLostRouter(Rig& r) {
  r.source->CloseTransfer(kId);
  r.Run();
  ReleaseForLostRouter(r);
}
void EndSession(Rig& r) { r.source->EndSession(); }
void Damage(Rig& r) { r.source->ShipDamaged(kId); }
void EndData(Rig& r) {
  r.source->Open(kId);
  r.source->EndData();
}
void Leave(Rig& r) { r.source->Leave(); }

void Revoke(Rig& r) { r.worker->decode->Revoke(kId); }
// The receive thread is inside a block: it is not free before it has left.
void RevokeWhileAPieceIsWritten(Rig& r) {
  r.source->Enter(kId);
  Revoke(r);
  r.Run();
  EXPECT_FALSE(r.worker->all_free());
  EXPECT_EQ(r.state(), S::kQuiescing);
  r.source->Leave();
}
void RevokeTwiceAndAttach(Rig& r) {
  r.source->Enter(kId);
  Revoke(r);
  Revoke(r);
  r.router->Attach(kId);
}
template <void (*then)(Rig&)>
void RevokeThen(Rig& r) {
  Revoke(r);
  then(r);
}
void CommitThenRevoke(Rig& r) {
  Commit(r);
  r.Run();
  Revoke(r);
}

struct Line {
  S state;
  E event;
  void (*act)(Rig& r);
  const char* expected;  // the state it leads to, and what the source and the router are told
};

const Line kLines[] = {
    {S::kGenerating, E::kReserve, Reserve, "Generating refused(tombstone)"},
    {S::kKept, E::kReserve, Reserve, "Kept refused(tombstone)"},
    {S::kQueued, E::kRoom, FreeTheHog, "Granted granted"},

    {S::kGranted, E::kCommit, Commit, "Generating committed"},
    {S::kGranted, E::kCommit, AttachAndCommit, "Generating token committed"},
    {S::kGranted, E::kBadCommit, CommitMoreTokensThanReserved,
     "gone lost(malformed) commit_refused(malformed)"},
    {S::kGranted, E::kBadCommit, CommitAnotherAttempt,
     "gone lost(malformed) commit_refused(malformed)"},
    {S::kGranted, E::kBadCommit, CommitWithoutFirstToken,
     "gone lost(malformed) commit_refused(malformed)"},

    {S::kQueued, E::kDropped, Release, "gone"},
    {S::kQueued, E::kDropped, EndSession, "gone"},
    {S::kQueued, E::kDropped, Reserve, "gone"},
    {S::kGranted, E::kDropped, Release, "gone"},
    {S::kGranted, E::kDropped, ReleaseForLostRouter, "gone lost(peer_lost)"},
    {S::kGranted, E::kDropped, CloseAndReleaseForLostRouter, "gone lost(peer_lost)"},
    {S::kGranted, E::kDropped, EndSession, "gone lost(peer_lost)"},
    {S::kGranted, E::kDropped, Reserve, "gone lost(malformed)"},
    {S::kGranted, E::kDropped, Damage, "gone lost(checksum_mismatch) revoked(checksum_mismatch)"},
    {S::kGranted, E::kDropped, EndData, "gone lost(peer_lost) revoked(peer_lost)"},
    {S::kGranted, E::kDropped, CommitWithoutPieces,
     "gone lost(missing_piece) commit_refused(missing_piece)"},
    {S::kGranted, E::kDropped, CommitAnotherPrompt,
     "gone lost(checksum_mismatch) commit_refused(checksum_mismatch)"},
    {S::kQuiescing, E::kQuiesced, Leave, "gone"},

    {S::kQueued, E::kAttach, Attach, "Queued"},
    {S::kGranted, E::kAttach, Attach, "Granted"},
    {S::kGenerating, E::kAttach, Attach, "Generating token"},
    {S::kKept, E::kAttach, Attach, "gone token last"},
    {S::kQuiescing, E::kAttach, Attach, "Quiescing"},

    {S::kGenerating, E::kToken, Await<E::kToken>, "Generating"},
    {S::kGenerating, E::kToken, AttachAndAwait<E::kToken>, "Generating token"},
    {S::kGenerating, E::kLastToken, Await<E::kLastToken>, "Kept"},
    {S::kGenerating, E::kLastToken, AttachAndAwait<E::kLastToken>, "gone token last"},
    {S::kGenerating, E::kSequenceFailed, Await<E::kSequenceFailed>, "Kept"},
    {S::kGenerating, E::kSequenceFailed, AttachAndAwait<E::kSequenceFailed>,
     "gone token failed(internal)"},
    {S::kGenerating, E::kSequenceFailed, FailAndAttach, "gone token failed(internal)"},
    {S::kGenerating, E::kUnattached, Await<E::kUnattached>, "gone lost(lease_expired)"},
    {S::kKept, E::kUnattached, Await<E::kUnattached>, "gone lost(lease_expired)"},

    {S::kQueued, E::kRevoke, Revoke, "Queued"},
    {S::kGranted, E::kRevoke, Revoke, "gone lost(preempted) revoked(preempted)"},
    {S::kGranted, E::kRevoke, RevokeWhileAPieceIsWritten,
     "gone lost(preempted) revoked(preempted)"},
    {S::kGranted, E::kRevoke, RevokeTwiceAndAttach, "Quiescing lost(preempted) revoked(preempted)"},
    {S::kGranted, E::kRevoke, RevokeThen<Commit>,
     "gone lost(preempted) revoked(preempted) commit_refused(preempted)"},
    {S::kGranted, E::kCommit, CommitThenRevoke, "Generating committed"},
    {S::kGranted, E::kRevoke, RevokeThen<Cancel>, "gone lost(preempted) revoked(preempted)"},
    {S::kGranted, E::kRevoke, RevokeThen<Release>, "gone lost(preempted) revoked(preempted)"},
    {S::kGranted, E::kRevoke, RevokeThen<Lose>, "gone revoked(preempted)"},
    {S::kGranted, E::kRevoke, RevokeThen<EndSession>, "gone lost(preempted) revoked(preempted)"},
    {S::kGenerating, E::kRevoke, Revoke, "Generating"},
    {S::kKept, E::kRevoke, Revoke, "Kept"},
    {S::kQuiescing, E::kRevoke, Revoke, "Quiescing"},

    {S::kQueued, E::kDeadline, Await<E::kDeadline>, "gone refused(deadline)"},
    {S::kGranted, E::kDeadline, Await<E::kDeadline>, "gone failed(deadline) revoked(deadline)"},
    {S::kGenerating, E::kDeadline, Await<E::kDeadline>, "gone failed(deadline)"},
    {S::kKept, E::kDeadline, Await<E::kDeadline>, "gone failed(deadline)"},

    {S::kQueued, E::kCancel, Cancel, "gone refused(cancelled)"},
    {S::kGranted, E::kCancel, Cancel, "gone revoked(cancelled)"},
    {S::kGenerating, E::kCancel, Cancel, "gone"},
    {S::kKept, E::kCancel, Cancel, "gone"},
    {S::kQuiescing, E::kCancel, Cancel, "Quiescing"},

    {S::kQueued, E::kRouterLost, Lose, "gone refused(peer_lost)"},
    {S::kGranted, E::kRouterLost, Lose, "gone revoked(peer_lost)"},
    {S::kGenerating, E::kRouterLost, Lose, "gone"},
    {S::kKept, E::kRouterLost, Lose, "gone"},
    {S::kQuiescing, E::kRouterLost, Lose, "Quiescing"},
};

TEST(DecodeCellsTest, EveryCellDoesWhatItsLineSays) {
  CellCounts counts;
  for (const Line& line : kLines) {
    SCOPED_TRACE(Name(line.state, line.event) + " -> " + line.expected);
    Rig rig(&counts);
    rig.Reach(line.state, line.event);
    EXPECT_EQ(rig.Told(line.act), line.expected);
    EXPECT_NE(std::find(rig.driven.begin(), rig.driven.end(), Name(line.state, line.event)),
              rig.driven.end());
  }
  EXPECT_EQ(counts.Problems({DecodeCells()}, "su"), "");
}

TEST(DecodeCellsTest, TheDrawingAndTheMarksAgree) {
  std::ifstream header("decode_worker/decode_state.h");
  std::ostringstream text;
  text << header.rdbuf();
  EXPECT_EQ(DrawingProblems(DecodeCells(), text.str()), "");
}

TEST(DecodeCellsTest, AnotherSourceAndARepeatedSubmitChangeNothingInAnyState) {
  for (int s = 0; s < kNumDecodeStates; ++s) {
    const auto state = static_cast<S>(s);
    SCOPED_TRACE(ToString(state));
    Rig rig;
    rig.Reach(state, E::kCancel);
    const auto other = rig.OpenSource({66, 6});
    rig.Reserve(*other);
    EXPECT_EQ(other->heard.back().refused().cause(), v1::CAUSE_TOMBSTONE);
    other->Release(kId);
    EXPECT_EQ(rig.router->Submit(rig.State()).code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(rig.router->Submit(rig.State(), {rig.worker->AsSink()}).code(),
              absl::StatusCode::kAlreadyExists);
    rig.Run();
    EXPECT_EQ(rig.state(), state);
    rig.Told([](Rig&) {});
  }
}

TEST(DecodeCellsTest, WhatComesAgainAfterTheCommitIsNotTakenAgain) {
  for (const S state : {S::kGenerating, S::kKept}) {
    SCOPED_TRACE(ToString(state));
    Rig rig;
    rig.Reach(state, E::kCancel);
    rig.noted.clear();
    rig.source->Release(kId);
    EXPECT_FALSE(rig.Commit(rig.Committed()).ok());  // the connection ends
    rig.source->EndData();
    rig.source->EndSession();
    rig.Run();
    EXPECT_EQ(rig.state(), state);
    EXPECT_TRUE(rig.noted.empty());
    rig.router->Attach(kId);
    if (rig.state().has_value()) rig.router->Attach(kId);
    rig.world.RunFor(seconds(15));
    const size_t tokens = state == S::kKept ? 2 : 100;
    EXPECT_EQ(rig.router->TokensOf(kId).size(), tokens);
    EXPECT_TRUE(rig.router->Finished(kId));
    rig.Told([](Rig&) {});
  }
}

}  // namespace
}  // namespace baton::worker
