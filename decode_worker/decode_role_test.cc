// The table of decode_state.h, cell by cell, against a source that does what the test says.
#include "decode_worker/decode_role.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/cores.h"
#include "common/hash.h"
#include "engine/engine_fixture.h"
#include "proto/mapping/decoder_state.h"
#include "proto/mapping/ids.h"
#include "worker/test_rig.h"

namespace baton::worker {
namespace {

using kvtransfer::Outcome;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A source whose host does as told.
class ScriptedSource : public kvtransfer::TransferSource::Host {
 public:
  ScriptedSource(SimWorld& world, kvtransfer::InProcessNetwork& network, RigSinks& sinks,
                 const WorkerOptions& like, const Cores& cores)
      : executor(*sinks.executors.emplace_back(std::make_unique<SimExecutor>(world, "source"))),
        layout_(like.layout),
        arena_(*kv::KvArena::Create(layout_, {.blocks = {64, 64}})),
        transport_(network, "source", executor, arena_.get()),
        dialer_(executor, sinks) {
    kvtransfer::TransferSource::Options options;
    options.epoch = {55, 5};
    options.layout_fp = like.layout_fp;
    options.numerics_id = like.numerics_id;
    options.layout = layout_;
    options.cores = cores;
    core = std::make_unique<kvtransfer::TransferSource>(
        options, executor, dialer_, std::vector<kvtransfer::Transport*>{&transport_}, *this,
        nullptr);
  }

  void Reserve(const DecoderState& state, const v1::Sink& sink) {
    kvtransfer::ReserveRequest request;
    request.prompt = state.prompt;
    request.max_tokens = state.stop.max_tokens;
    request.age = state.age;
    request.remaining = state.remaining;
    request.n = n;
    core->Reserve(state.attempt, {sink.address(), proto::Get(sink.epoch())}, request);
  }
  // All blocks of the prompt, zeros, then Commit.
  void ShipAndCommit(const DecoderState& state, TokenId first) {
    const auto blocks = static_cast<uint32_t>((state.prompt.size() + 15) / 16);
    for (uint32_t layer = 0; layer < layout_.layers.size(); ++layer) {
      kvtransfer::BlockRun run;
      run.layer = layer;
      for (uint32_t block = 0; block < blocks; ++block) run.blocks.push_back(block);
      core->Ship(state.attempt, run);
    }
    DecoderState committed = state;
    committed.choices[0].tokens = {first};
    core->Commit(state.attempt, {TokenChainHash(state.prompt), proto::Serialize(committed)});
  }

  void OnGranted(const AttemptId& id, const std::vector<uint32_t>&) override { ++granted[id]; }
  void OnWaiting(const AttemptId& id) override { ++waiting[id]; }
  void OnEnded(const AttemptId& id, const kvtransfer::TransferEnd& end) override {
    ended[id] = end;
  }

  SimExecutor& executor;
  uint32_t n = 1;
  std::map<AttemptId, int> granted;
  std::map<AttemptId, int> waiting;
  std::map<AttemptId, kvtransfer::TransferEnd> ended;
  std::unique_ptr<kvtransfer::TransferSource> core;

 private:
  const kv::KvLayout layout_;
  std::unique_ptr<kv::KvArena> arena_;
  kvtransfer::InProcessTransport transport_;
  RigDialer dialer_;
};

constexpr uint64_t kOthers[] = {97, 98, 99};

class DecodeRoleTest : public testing::Test {
 protected:
  DecodeRoleTest()
      : network_([this](const kvtransfer::InProcessNetwork::Wire&, Executor& to, std::string&,
                        std::function<void()> deliver) {
          if (!hold_data_) to.Post(std::move(deliver));
        }) {
    Start();
  }

  void Start() {
    session_.reset();
    source_.reset();
    worker_.reset();
    hold_data_ = false;
    RigWorker::Options options;
    options.blocks = 16;
    options.model.step_cost = milliseconds(2);
    options.model.nan = [this](const engine::StepItem& item) {
      return nan_ && !item.samples.empty();
    };
    nan_ = false;
    options.cores = {"machine", {0, 1}, 2};
    worker_ = std::make_unique<RigWorker>(world_, network_, sinks_, options);
    session_ = std::make_unique<RigSession>(world_, *worker_);
    source_ = std::make_unique<ScriptedSource>(world_, network_, sinks_, worker_->core->options(),
                                               source_cores_);
    world_.RunFor(milliseconds(1));
  }

  DecoderState State(uint64_t request, uint32_t prompt = 64, uint32_t max_tokens = 100) {
    DecoderState state =
        engine::FixtureState(engine::FixturePrompt(prompt, request), max_tokens, request);
    state.attempt = RigAttempt(request);
    return state;
  }
  std::optional<DecodeState> state() const { return worker_->decode->state(id_); }
  std::vector<v1::WorkerEvent> Events() const { return session_->EventsOf(id_); }

  void Reach(DecodeState wanted, std::optional<Duration> remaining = {}) {
    Start();
    if (wanted == DecodeState::kQueued) {
      // They begin with five blocks of the sixteen each and grow.
      for (const uint64_t other : kOthers)
        ASSERT_TRUE(session_->Submit(State(other, 64, 190)).ok());
      world_.RunFor(milliseconds(1));
    }
    DecoderState state = State(1, 64, wanted == DecodeState::kKept ? 4 : 100);
    state.remaining = remaining;
    source_->Reserve(state, worker_->AsSink());
    world_.RunFor(milliseconds(1));
    if (wanted == DecodeState::kGenerating || wanted == DecodeState::kKept) {
      source_->ShipAndCommit(state, 1);
      world_.RunFor(wanted == DecodeState::kKept ? milliseconds(100) : milliseconds(5));
    }
    ASSERT_EQ(this->state(), wanted) << ToString(wanted);
  }
  void ExpectGone(const std::string& what) {
    for (const uint64_t other : kOthers) session_->Cancel(RigAttempt(other));
    world_.RunFor(seconds(2));
    EXPECT_EQ(state(), std::nullopt) << what;
    EXPECT_TRUE(worker_->all_free()) << what;
    EXPECT_TRUE(worker_->core->idle()) << what;
    EXPECT_EQ(worker_->decode->sink().live(), 0u) << what;
    EXPECT_TRUE(worker_->core->pool().CheckIntegrity().ok()) << what;
  }
  v1::Cause RefusedWith(const DecoderState& state) {
    source_->Reserve(state, worker_->AsSink());
    world_.RunFor(milliseconds(1));
    const auto found = source_->ended.find(state.attempt);
    if (found == source_->ended.end()) return v1::CAUSE_UNSPECIFIED;
    EXPECT_EQ(found->second.outcome, Outcome::kNotGranted);
    return found->second.cause;
  }

  const AttemptId id_ = RigAttempt(1);
  SimWorld world_;
  bool hold_data_ = false;
  bool nan_ = false;
  Cores source_cores_;
  kvtransfer::InProcessNetwork network_;
  RigSinks sinks_;
  std::unique_ptr<RigWorker> worker_;
  std::unique_ptr<RigSession> session_;
  std::unique_ptr<ScriptedSource> source_;
};

constexpr DecodeState kStates[] = {DecodeState::kQueued, DecodeState::kGranted,
                                   DecodeState::kGenerating, DecodeState::kKept};

TEST_F(DecodeRoleTest, CancelEndsItInEveryStateWithoutAnEvent) {
  for (const DecodeState state : kStates) {
    Reach(state);
    session_->Cancel(id_);
    ExpectGone(std::string(ToString(state)));
    EXPECT_TRUE(Events().empty()) << ToString(state);
    const bool committed = state >= DecodeState::kGenerating;
    EXPECT_EQ(source_->ended.at(id_).cause, committed ? v1::CAUSE_UNSPECIFIED : v1::CAUSE_CANCELLED)
        << ToString(state);
  }
}

TEST_F(DecodeRoleTest, LossOfTheRouterEndsItInEveryState) {
  for (const DecodeState state : kStates) {
    Reach(state);
    session_->Crash();
    world_.RunFor(seconds(2));
    EXPECT_TRUE(worker_->core->idle()) << ToString(state);
    EXPECT_TRUE(worker_->all_free()) << ToString(state);
  }
}

TEST_F(DecodeRoleTest, LossOfTheSourceEndsItOnlyBeforeTheCommit) {
  for (const DecodeState state : kStates) {
    Reach(state);
    source_->core.reset();
    for (const uint64_t other : kOthers) session_->Cancel(RigAttempt(other));
    world_.RunFor(milliseconds(10));
    if (state >= DecodeState::kGenerating) {
      EXPECT_EQ(this->state(), state);
      session_->Attach(id_);
      world_.RunFor(seconds(2));
      EXPECT_TRUE(session_->Finished(id_)) << ToString(state);
    }
    ExpectGone(std::string(ToString(state)));
    if (state == DecodeState::kGranted) {
      EXPECT_EQ(Events().at(0).lost().cause(), v1::CAUSE_PEER_LOST);
    }
  }
}

TEST_F(DecodeRoleTest, DeadlineEndsItInEveryState) {
  for (const DecodeState state : kStates) {
    Reach(state, milliseconds(200));
    session_->Attach(RigAttempt(99));
    world_.RunFor(milliseconds(200));
    ExpectGone(std::string(ToString(state)));
    if (state == DecodeState::kQueued) {
      EXPECT_EQ(source_->ended.at(id_).cause, v1::CAUSE_DEADLINE);
      EXPECT_TRUE(Events().empty());
    } else {
      EXPECT_EQ(Events().back().failed().cause(), v1::CAUSE_DEADLINE) << ToString(state);
    }
  }
}

TEST_F(DecodeRoleTest, ReleaseBeforeTheCommitFreesWithoutAWordToTheRouter) {
  for (const DecodeState state : {DecodeState::kQueued, DecodeState::kGranted}) {
    Reach(state);
    source_->core->Release(id_);
    ExpectGone(std::string(ToString(state)));
    EXPECT_TRUE(Events().empty());
  }
}

TEST_F(DecodeRoleTest, ReserveIsRefusedByCause) {
  DecoderState state = State(1);
  state.attempt.router = {4, 4};
  EXPECT_EQ(RefusedWith(state), v1::CAUSE_NO_SESSION);
  EXPECT_EQ(RefusedWith(State(2, 200, 300)), v1::CAUSE_NO_ROOM);
  state = State(3);
  state.remaining = milliseconds(-1);
  EXPECT_EQ(RefusedWith(state), v1::CAUSE_DEADLINE);
  source_->n = kMaxChoices + 1;
  EXPECT_EQ(RefusedWith(State(4)), v1::CAUSE_MALFORMED);
  source_->n = 3;  // 4 blocks of prompt and 7 for each, of 16
  EXPECT_EQ(RefusedWith(State(7)), v1::CAUSE_NO_ROOM);
  source_->n = 1;
  session_->Cancel(RigAttempt(5));
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(RefusedWith(State(5)), v1::CAUSE_TOMBSTONE);
  worker_->core->Drain();
  EXPECT_EQ(RefusedWith(State(6)), v1::CAUSE_DRAINING);
  EXPECT_TRUE(worker_->all_free());
  EXPECT_TRUE(session_->EventsOf(RigAttempt(2)).empty());
}

TEST_F(DecodeRoleTest, WaitsOnlyWhenThereIsNoRoomAndIsGrantedByAge) {
  source_->Reserve(State(1, 150, 100), worker_->AsSink());  // 11 of 16 blocks
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(source_->waiting[id_], 0);
  EXPECT_EQ(source_->granted[id_], 1);
  DecoderState old = State(3, 150, 100);
  old.age = seconds(60);
  source_->Reserve(State(2, 150, 100), worker_->AsSink());
  source_->Reserve(old, worker_->AsSink());
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(source_->waiting[RigAttempt(2)], 1);
  EXPECT_EQ(source_->waiting[RigAttempt(3)], 1);
  source_->core->Release(id_);
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(source_->granted[RigAttempt(3)], 1);
  EXPECT_EQ(source_->granted[RigAttempt(2)], 0);
}

TEST_F(DecodeRoleTest, ThoseAreComingWhosePromptsAreComputedOnItsCores) {
  source_cores_ = {"machine", {0, 1}, 2};
  Start();
  const auto coming = [this] { return worker_->decode->Coming(); };
  EXPECT_EQ(coming(), 0u);
  source_->n = 3;
  source_->Reserve(State(1, 64, 10), worker_->AsSink());
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(coming(), 3u);
  source_->n = 1;
  source_->Reserve(State(2, 64, 100), worker_->AsSink());
  source_->Reserve(State(3, 120, 100), worker_->AsSink());  // waits for room
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(coming(), 4u);
  source_->ShipAndCommit(State(2, 64, 100), 1);
  world_.RunFor(milliseconds(5));
  EXPECT_EQ(coming(), 3u);
  session_->Cancel(id_);
  world_.RunFor(milliseconds(5));
  EXPECT_EQ(coming(), 1u);  // the third has room now
  source_->core.reset();
  world_.RunFor(milliseconds(5));
  EXPECT_EQ(coming(), 0u);
}

TEST_F(DecodeRoleTest, NobodyIsComingWhosePromptIsComputedElsewhere) {
  for (const Cores& cores : {Cores{}, Cores{"another", {0, 1}, 2}, Cores{"machine", {2, 3}, 2}}) {
    source_cores_ = cores;
    Start();
    source_->Reserve(State(1), worker_->AsSink());
    world_.RunFor(milliseconds(1));
    EXPECT_EQ(source_->granted[id_], 1);
    EXPECT_EQ(worker_->decode->Coming(), 0u);
  }
}

TEST_F(DecodeRoleTest, StateThatWasNotReservedForIsRefused) {
  Reach(DecodeState::kGranted);
  DecoderState other = State(1);
  other.stop.max_tokens = 99;  // reserved: 100
  source_->ShipAndCommit(other, 1);
  world_.RunFor(milliseconds(10));
  EXPECT_EQ(source_->ended.at(id_).outcome, Outcome::kRefused);
  EXPECT_EQ(source_->ended.at(id_).cause, v1::CAUSE_MALFORMED);
  EXPECT_EQ(Events().at(0).lost().cause(), v1::CAUSE_MALFORMED);
  ExpectGone("bad commit");
  Reach(DecodeState::kGranted);
  DecoderState more = State(1);
  more.choices.resize(2);  // reserved: 1
  more.choices[1].tokens = {1};
  source_->ShipAndCommit(more, 1);
  world_.RunFor(milliseconds(10));
  EXPECT_EQ(source_->ended.at(id_).cause, v1::CAUSE_MALFORMED);
  ExpectGone("more choices");
}

TEST_F(DecodeRoleTest, EachChoiceOfACommitHasOneToken) {
  source_->n = 2;
  source_->Reserve(State(1, 64, 20), worker_->AsSink());
  world_.RunFor(milliseconds(1));
  DecoderState state = State(1, 64, 20);
  state.choices.resize(2);
  source_->ShipAndCommit(state, 1);  // of the first choice alone
  world_.RunFor(milliseconds(10));
  EXPECT_EQ(source_->ended.at(id_).cause, v1::CAUSE_MALFORMED);
  ExpectGone("a choice without a token");
}

TEST_F(DecodeRoleTest, RoomToGrowStaysReservedUntilItIsWrittenTo) {
  const auto in = [this](kv::BlockState state) {
    return worker_->core->pool().Counts()[static_cast<size_t>(state)] / 2;
  };
  source_->Reserve(State(1, 64, 100), worker_->AsSink());  // 4 blocks of prompt and one
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(in(kv::BlockState::kFilling), 4u);
  EXPECT_EQ(in(kv::BlockState::kReserved), 1u);
  source_->ShipAndCommit(State(1, 64, 100), 1);
  world_.RunFor(milliseconds(7));  // a few steps
  EXPECT_EQ(in(kv::BlockState::kLive), 5u);
  EXPECT_EQ(in(kv::BlockState::kReserved), 0u);
  world_.RunFor(milliseconds(40));  // more than 16 of them
  EXPECT_EQ(in(kv::BlockState::kLive), 6u);
}

TEST_F(DecodeRoleTest, CommitWithoutAllPiecesIsRefused) {
  Reach(DecodeState::kGranted);
  DecoderState state = State(1);
  state.choices[0].tokens = {1};
  source_->core->Commit(id_, {TokenChainHash(state.prompt), proto::Serialize(state)});
  world_.RunFor(milliseconds(10));
  EXPECT_EQ(source_->ended.at(id_).cause, v1::CAUSE_MISSING_PIECE);
  EXPECT_EQ(Events().at(0).lost().cause(), v1::CAUSE_MISSING_PIECE);
  ExpectGone("missing piece");
}

TEST_F(DecodeRoleTest, EventsBeginWithTheFirstTokenAndFlowFromAttach) {
  Reach(DecodeState::kGenerating);
  EXPECT_TRUE(Events().empty());
  session_->Attach(id_);
  world_.RunFor(milliseconds(3));
  ASSERT_GE(Events().size(), 2u);
  EXPECT_EQ(Events()[0].token().token(), 1);
  EXPECT_EQ(Events()[0].token().position(), 64u);
  EXPECT_EQ(Events()[1].token().position(), 65u);
  world_.RunFor(seconds(2));
  EXPECT_TRUE(session_->Finished(id_));
  ExpectGone("done");
}

TEST_F(DecodeRoleTest, AttachBeforeTheCommitIsRemembered) {
  Reach(DecodeState::kGranted);
  session_->Attach(id_);
  world_.RunFor(milliseconds(1));
  source_->ShipAndCommit(State(1), 1);
  world_.RunFor(seconds(2));
  EXPECT_TRUE(session_->Finished(id_));
  EXPECT_EQ(Events()[0].token().position(), 64u);
  ExpectGone("done");
}

TEST_F(DecodeRoleTest, NobodyAttachesForALease) {
  for (const DecodeState state : {DecodeState::kGenerating, DecodeState::kKept}) {
    Reach(state);
    world_.RunFor(milliseconds(10100));
    ExpectGone(std::string(ToString(state)));
    EXPECT_EQ(Events().at(0).lost().cause(), v1::CAUSE_LEASE_EXPIRED);
  }
}

TEST_F(DecodeRoleTest, AnAttachThatCameWhileTheWorkerStoodStillIsNotTooLate) {
  Reach(DecodeState::kKept);
  worker_->executor.StandStill(world_.now() + seconds(60), /*unread=*/milliseconds(300));
  session_->Attach(id_);
  world_.RunFor(seconds(61));
  EXPECT_TRUE(session_->Finished(id_));
  ExpectGone("attached");
}

TEST_F(DecodeRoleTest, FailureOfASequenceIsKeptAndToldToTheRouter) {
  Reach(DecodeState::kGranted);
  nan_ = true;
  source_->ShipAndCommit(State(1), 1);
  world_.RunFor(milliseconds(50));
  EXPECT_EQ(state(), DecodeState::kKept);
  session_->Attach(id_);
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(Events().back().failed().code(), static_cast<int>(absl::StatusCode::kInternal));
  ExpectGone("nan");
}

TEST_F(DecodeRoleTest, TheYoungestGrantIsRevokedAndTheOldestThatWaitsGetsItsRoom) {
  EXPECT_FALSE(worker_->decode->YoungestGrant().has_value());
  DecoderState older = State(2, 64, 1);
  older.age = seconds(60);
  source_->Reserve(State(1, 150, 100), worker_->AsSink());  // 11 of 16 blocks
  source_->Reserve(older, worker_->AsSink());               // 4
  world_.RunFor(milliseconds(1));
  ASSERT_EQ(source_->granted.size(), 2u);
  DecoderState oldest = State(3, 150, 100);
  oldest.age = seconds(90);
  source_->Reserve(oldest, worker_->AsSink());
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(source_->granted.count(oldest.attempt), 0u);
  ASSERT_EQ(worker_->decode->YoungestGrant()->attempt, id_);
  EXPECT_FALSE(worker_->decode->Revoke(oldest.attempt));  // it waits
  const Time youngest = worker_->decode->YoungestGrant()->admitted_at;
  using engine::GaveUp;
  EXPECT_EQ(worker_->decode->GiveUpYoungest(youngest + Duration(1)), GaveUp::kNobody);
  EXPECT_EQ(worker_->decode->GiveUpYoungest(youngest), GaveUp::kComing);
  // One at a time: the older one is asked only when these blocks were not enough.
  EXPECT_EQ(worker_->decode->GiveUpYoungest(Time::min()), GaveUp::kComing);
  EXPECT_EQ(worker_->decode->YoungestGrant()->attempt, older.attempt);
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(source_->ended.at(id_).outcome, Outcome::kRevoked);
  EXPECT_EQ(source_->ended.at(id_).cause, v1::CAUSE_PREEMPTED);
  EXPECT_EQ(Events().at(0).lost().cause(), v1::CAUSE_PREEMPTED);
  EXPECT_EQ(source_->granted[oldest.attempt], 1);
  // It is over: a new attempt is what comes back.
  EXPECT_FALSE(worker_->decode->Revoke(id_));
  source_->ended.clear();
  EXPECT_EQ(RefusedWith(State(1)), v1::CAUSE_TOMBSTONE);
}

TEST_F(DecodeRoleTest, ReserveOfALiveOrFinishedAttemptIsRefused) {
  for (const DecodeState state : {DecodeState::kGenerating, DecodeState::kKept}) {
    Reach(state);
    source_->ended.clear();
    EXPECT_EQ(RefusedWith(State(1)), v1::CAUSE_TOMBSTONE);
    EXPECT_EQ(this->state(), state);
  }
}

// Both halves would send the router events of one attempt, and a cancel would have two to end.
TEST_F(DecodeRoleTest, AnAttemptThatRunsAloneHereIsNotReservedForAsWell) {
  ASSERT_TRUE(session_->Submit(State(1)).ok());
  EXPECT_EQ(RefusedWith(State(1)), v1::CAUSE_TOMBSTONE);
  world_.RunFor(seconds(2));
  EXPECT_TRUE(session_->Finished(id_));
  ExpectGone("alone");
}

TEST_F(DecodeRoleTest, AReservedAttemptIsNotTakenToRunAloneAsWell) {
  Reach(DecodeState::kGranted);
  EXPECT_EQ(session_->Submit(State(1)).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(state(), DecodeState::kGranted);
}

}  // namespace
}  // namespace baton::worker
