// The table of prefill_state.h, cell by cell, against a sink that does what the test says.
#include "prefill_worker/prefill_role.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine_fixture.h"
#include "kvtransfer/tombstones.h"
#include "proto/mapping/ids.h"
#include "worker/test_rig.h"

namespace baton::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A sink whose host answers as told.
class ScriptedSink : public kvtransfer::TransferSink::Host {
 public:
  enum class Answer { kNothing, kWait, kGrant, kRefuse };

  ScriptedSink(SimWorld& world, kvtransfer::InProcessNetwork& network, RigSinks& sinks,
               const std::string& name, const WorkerOptions& like)
      : executor(*sinks.executors.emplace_back(std::make_unique<SimExecutor>(world, name))),
        name_(name),
        sinks_(sinks),
        arena_(*kv::KvArena::Create(like.layout, {.blocks = {64, 64}})),
        tombstones_(executor, seconds(20)),
        table_(epoch, *arena_, executor, seconds(20)),
        transport_(network, name, executor, nullptr),
        listener_(*transport_.Listen(table_)) {
    kvtransfer::TransferSink::Options options;
    options.epoch = epoch;
    options.layout_fp = like.layout_fp;
    options.numerics_id = like.numerics_id;
    options.vocab_size = like.vocab_size;
    options.context_length = like.context_length;
    options.num_groups = 2;
    options.data_addresses = {listener_->address()};
    core = std::make_unique<kvtransfer::TransferSink>(options, executor, table_, tombstones_,
                                                      random_, *this, nullptr);
    sinks_.by_address[name] = {&executor, core.get()};
  }
  ~ScriptedSink() override { Die(); }

  void Die() {
    if (core == nullptr) return;
    sinks_.by_address.erase(name_);
    listener_.reset();
    core.reset();
  }

  v1::Sink AsSink() const {
    v1::Sink sink;
    sink.set_address(name_);
    proto::Set(epoch, *sink.mutable_epoch());
    return sink;
  }

  void OnReserve(const AttemptId& id, kvtransfer::Reservation) override {
    ++reserves;
    if (answer == Answer::kWait) core->Wait(id);
    if (answer == Answer::kGrant) Grant(id);
    if (answer == Answer::kRefuse) core->Refuse(id, v1::CAUSE_NO_ROOM);
  }
  void Grant(const AttemptId& id) {
    std::vector<kvtransfer::TransferSink::GroupGrant> groups(2);
    for (kv::BlockId block = 0; block < 32; ++block) {
      for (auto& group : groups) group.blocks.push_back(block);
    }
    core->Grant(id, groups);
  }
  void OnDropped(const AttemptId&, v1::Cause cause) override { dropped = cause; }
  void OnQuiesced(const AttemptId&) override {}
  v1::Cause OnCommit(const AttemptId&, std::string) override {
    ++commits;
    return commit_answer;
  }

  const Epoch epoch{77, 7};
  SimExecutor& executor;
  Answer answer = Answer::kGrant;
  v1::Cause commit_answer = v1::CAUSE_UNSPECIFIED;
  int reserves = 0;
  int commits = 0;
  std::optional<v1::Cause> dropped;
  std::unique_ptr<kvtransfer::TransferSink> core;

 private:
  const std::string name_;
  RigSinks& sinks_;
  std::unique_ptr<kv::KvArena> arena_;
  kvtransfer::Tombstones tombstones_;
  kvtransfer::ReceiveTable table_;
  kvtransfer::InProcessTransport transport_;
  std::unique_ptr<kvtransfer::DataListener> listener_;
  SeededRandom random_{5};
};

using Answer = ScriptedSink::Answer;

class PrefillRoleTest : public testing::Test {
 protected:
  PrefillRoleTest()
      : network_([this](const kvtransfer::InProcessNetwork::Wire&, Executor& to, std::string&,
                        std::function<void()> deliver) {
          if (!hold_data_) to.Post(std::move(deliver));
        }) {
    Start();
  }

  void Start() {
    session_.reset();
    sinks_used_.clear();
    worker_.reset();
    hold_data_ = false;
    RigWorker::Options options;
    options.role = v1::ROLE_PREFILL;
    options.name = "prefill";
    options.reserve_patience = seconds(4);
    options.step_tokens = 16;
    options.model.step_cost = milliseconds(1);
    options.model.nan = [this](const engine::StepItem& item) {
      return nan_ && !item.samples.empty();
    };
    worker_ = std::make_unique<RigWorker>(world_, network_, sinks_, options);
    session_ = std::make_unique<RigSession>(world_, *worker_);
    for (const std::string name : {"sink-1", "sink-2"}) {
      sinks_used_.push_back(
          std::make_unique<ScriptedSink>(world_, network_, sinks_, name, worker_->core->options()));
    }
    nan_ = false;
    world_.RunFor(milliseconds(1));
  }

  ScriptedSink& sink(size_t i) { return *sinks_used_[i]; }
  const AttemptId id_ = RigAttempt(1);

  absl::Status Submit(uint32_t max_tokens = 10, std::optional<Duration> remaining = {}) {
    DecoderState state = engine::FixtureState(engine::FixturePrompt(100, 3), max_tokens, 3);
    state.attempt = id_;
    state.remaining = remaining;
    return session_->Submit(state, {sink(0).AsSink(), sink(1).AsSink()});
  }
  std::optional<PrefillState> state() const { return worker_->prefill->state(id_); }
  bool RunTo(PrefillState wanted) {
    return world_.RunUntilTrue([&] { return state() == wanted; }, world_.now() + seconds(20));
  }

  // Submits, and drives the attempt into `wanted`.
  void Reach(PrefillState wanted, std::optional<Duration> remaining = {}) {
    Start();
    sink(0).answer = wanted == PrefillState::kReserving ? Answer::kNothing : Answer::kGrant;
    if (wanted == PrefillState::kWaiting || wanted == PrefillState::kLeaving) {
      sink(0).answer = Answer::kWait;
    }
    hold_data_ = wanted == PrefillState::kCommitting || wanted == PrefillState::kEnding;
    ASSERT_TRUE(Submit(10, remaining).ok());
    if (wanted == PrefillState::kEnding) {
      ASSERT_TRUE(RunTo(PrefillState::kRunning));
      session_->Cancel(id_);
    }
    ASSERT_TRUE(state() == wanted || RunTo(wanted)) << ToString(wanted);
  }

  void ExpectGone(const std::string& what) {
    hold_data_ = false;
    world_.RunFor(seconds(2));
    EXPECT_EQ(state(), std::nullopt) << what;
    EXPECT_TRUE(worker_->all_free()) << what;
    EXPECT_TRUE(worker_->core->idle()) << what;
    EXPECT_TRUE(worker_->core->pool().CheckIntegrity().ok()) << what;
    EXPECT_EQ(sink(0).core->live(), 0u) << what;
    EXPECT_FALSE(Submit().ok()) << "no tombstone: " << what;
  }
  std::vector<v1::WorkerEvent> Events() const { return session_->EventsOf(id_); }

  SimWorld world_;
  bool hold_data_ = false;
  bool nan_ = false;
  kvtransfer::InProcessNetwork network_;
  RigSinks sinks_;
  std::unique_ptr<RigWorker> worker_;
  std::unique_ptr<RigSession> session_;
  std::vector<std::unique_ptr<ScriptedSink>> sinks_used_;
};

constexpr PrefillState kStates[] = {PrefillState::kQueued,  PrefillState::kReserving,
                                    PrefillState::kWaiting, PrefillState::kLeaving,
                                    PrefillState::kRunning, PrefillState::kCommitting,
                                    PrefillState::kEnding};

TEST_F(PrefillRoleTest, CancelEndsItInEveryStateWithoutAnEvent) {
  for (const PrefillState state : kStates) {
    Reach(state);
    const size_t before = Events().size();
    session_->Cancel(id_);
    ExpectGone(std::string(ToString(state)));
    // What the source was about to say when it was cancelled does not count as its end.
    for (size_t i = before; i < Events().size(); ++i) {
      EXPECT_FALSE(Events()[i].has_failed() || Events()[i].has_no_room()) << ToString(state);
    }
  }
}

TEST_F(PrefillRoleTest, LossOfTheRouterEndsItInEveryState) {
  for (const PrefillState state : kStates) {
    Reach(state);
    session_->Crash();
    hold_data_ = false;
    world_.RunFor(seconds(2));
    EXPECT_TRUE(worker_->core->idle()) << ToString(state);
    EXPECT_TRUE(worker_->all_free()) << ToString(state);
  }
}

TEST_F(PrefillRoleTest, DeadlineEndsItInEveryStateAndIsSilentAfterTheFirstToken) {
  for (const PrefillState state : kStates) {
    // Over for the router already, or for one turn only.
    if (state == PrefillState::kEnding || state == PrefillState::kLeaving) continue;
    Reach(state, state == PrefillState::kQueued ? Duration(0) : Duration(seconds(1)));
    if (state == PrefillState::kRunning) {
      // The prompt is done in a few milliseconds; hold it by a deadline that comes sooner.
      Reach(state, milliseconds(4));
    }
    world_.RunFor(seconds(3));
    ExpectGone(std::string(ToString(state)));
    ASSERT_FALSE(Events().empty()) << ToString(state);
    const v1::WorkerEvent last = Events().back();
    if (state == PrefillState::kCommitting) {
      EXPECT_TRUE(last.has_first_token());
    } else {
      EXPECT_EQ(last.failed().cause(), v1::CAUSE_DEADLINE) << ToString(state);
    }
  }
}

TEST_F(PrefillRoleTest, RefusedByOneSinkAsksTheNext) {
  sink(0).answer = Answer::kRefuse;
  ASSERT_TRUE(Submit().ok());
  world_.RunFor(seconds(1));
  EXPECT_EQ(sink(1).commits, 1);
  EXPECT_EQ(Events().at(0).started().sink_address(), "sink-2");
  ExpectGone("handed over");
}

TEST_F(PrefillRoleTest, SinkNobodyReachesIsPassedOver) {
  sink(0).Die();
  ASSERT_TRUE(Submit().ok());
  world_.RunFor(seconds(3));
  EXPECT_EQ(sink(1).commits, 1);
}

TEST_F(PrefillRoleTest, RefusedByAllIsNoRoom) {
  sink(0).answer = sink(1).answer = Answer::kRefuse;
  ASSERT_TRUE(Submit().ok());
  world_.RunFor(seconds(1));
  ASSERT_EQ(Events().size(), 1u);
  EXPECT_EQ(Events()[0].no_room().cause(), v1::CAUSE_NO_ROOM);
  ExpectGone("no room");
}

// Waiting would not help: the router must not take it for a full cluster.
TEST_F(PrefillRoleTest, ReachedByNoneIsToldApartFromNoRoom) {
  sink(0).Die();
  sink(1).Die();
  ASSERT_TRUE(Submit().ok());
  world_.RunFor(seconds(10));
  EXPECT_EQ(Events().at(0).no_room().cause(), v1::CAUSE_PEER_LOST);
  EXPECT_TRUE(worker_->core->idle());
  EXPECT_TRUE(worker_->all_free());
}

TEST_F(PrefillRoleTest, ASinkThatSaysNothingUntilPatienceEndsIsNotReached) {
  sink(0).answer = sink(1).answer = Answer::kNothing;
  ASSERT_TRUE(Submit().ok());
  world_.RunFor(seconds(6));
  EXPECT_EQ(Events().at(0).no_room().cause(), v1::CAUSE_PEER_LOST);
  ExpectGone("no answer");
}

TEST_F(PrefillRoleTest, OneSinkThatLacksRoomGoesBeforeOneThatIsNotReached) {
  sink(0).answer = Answer::kRefuse;
  sink(1).Die();
  ASSERT_TRUE(Submit().ok());
  world_.RunFor(seconds(10));
  EXPECT_EQ(Events().at(0).no_room().cause(), v1::CAUSE_NO_ROOM);
}

TEST_F(PrefillRoleTest, PatienceIsSharedByTheSinksAndWaitsAtOneAtATime) {
  sink(0).answer = sink(1).answer = Answer::kWait;
  ASSERT_TRUE(Submit().ok());
  world_.RunFor(milliseconds(1900));
  EXPECT_EQ(state(), PrefillState::kWaiting);
  EXPECT_EQ(sink(0).reserves, 1);
  EXPECT_EQ(sink(1).reserves, 0);
  world_.RunFor(milliseconds(200));
  EXPECT_EQ(sink(0).dropped, v1::CAUSE_RELEASED);
  EXPECT_EQ(sink(1).reserves, 1);
  world_.RunFor(seconds(2));
  EXPECT_TRUE(Events().at(0).has_no_room());
  ExpectGone("no room");
}

TEST_F(PrefillRoleTest, NothingIsComputedBeforeTheGrant) {
  sink(0).answer = Answer::kWait;
  ASSERT_TRUE(Submit().ok());
  world_.RunFor(seconds(1));
  EXPECT_EQ(worker_->metrics.AddCounter("baton_prompt_tokens_total", "").Get().Value(), 0);
  sink(0).Grant(id_);
  world_.RunFor(seconds(1));
  EXPECT_EQ(worker_->metrics.AddCounter("baton_prompt_tokens_total", "").Get().Value(), 100);
  EXPECT_GE(Events().at(0).started().reserve_wait_ns(), 999'000'000u);
  EXPECT_EQ(sink(0).commits, 1);
}

TEST_F(PrefillRoleTest, RevokedWhileRunningFailsAsUnavailable) {
  Reach(PrefillState::kRunning);
  sink(0).core->Drop(id_, v1::CAUSE_NO_ROOM);
  ExpectGone("revoked");
  EXPECT_EQ(Events().back().failed().code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Events().back().failed().cause(), v1::CAUSE_NO_ROOM);
}

TEST_F(PrefillRoleTest, AfterTheFirstTokenTheSinksWordDecides) {
  sink(0).commit_answer = v1::CAUSE_MALFORMED;
  ASSERT_TRUE(Submit().ok());
  world_.RunFor(seconds(1));
  EXPECT_EQ(sink(0).commits, 1);
  EXPECT_TRUE(Events().back().has_first_token());
  ExpectGone("commit refused");
}

TEST_F(PrefillRoleTest, DeadSinkGivesTheBlocksBack) {
  for (const PrefillState state : {PrefillState::kRunning, PrefillState::kCommitting}) {
    Reach(state);
    sink(0).Die();
    hold_data_ = false;
    world_.RunFor(seconds(12));
    EXPECT_TRUE(worker_->core->idle()) << ToString(state);
    EXPECT_TRUE(worker_->all_free()) << ToString(state);
    EXPECT_EQ(Events().back().has_failed(), state == PrefillState::kRunning);
  }
}

TEST_F(PrefillRoleTest, FirstTokenThatEndsReleasesTheSink) {
  ASSERT_TRUE(Submit(1).ok());
  world_.RunFor(seconds(1));
  EXPECT_EQ(sink(0).commits, 0);
  EXPECT_EQ(sink(0).dropped, v1::CAUSE_RELEASED);
  EXPECT_EQ(Events().back().first_token().token().finish_reason(), v1::FINISH_REASON_LENGTH);
  ExpectGone("ended");
}

TEST_F(PrefillRoleTest, NanInTheLogitsIsInternal) {
  nan_ = true;
  ASSERT_TRUE(Submit().ok());
  world_.RunFor(seconds(1));
  EXPECT_EQ(Events().back().failed().code(), static_cast<int>(absl::StatusCode::kInternal));
  ExpectGone("nan");
}

TEST_F(PrefillRoleTest, OnlyPromptsWithoutTokensAreTaken) {
  DecoderState state = engine::FixtureState(engine::FixturePrompt(100, 3), 10, 3);
  state.attempt = id_;
  state.choices[0].tokens = {1};
  EXPECT_EQ(session_->Submit(state, {sink(0).AsSink()}).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace baton::worker
