// The core alone with routers: sessions, Submit, unified runs, every end of them.
#include "worker/worker_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_fixture.h"
#include "proto/mapping/ids.h"
#include "worker/test_rig.h"

namespace baton::worker {
namespace {

using engine::FixturePrompt;
using std::chrono::milliseconds;
using std::chrono::seconds;

class WorkerCoreTest : public testing::Test {
 protected:
  WorkerCoreTest() { Start({}); }

  void Start(RigWorker::Options options) {
    sessions_.clear();
    worker_.reset();
    worker_ = std::make_unique<RigWorker>(world_, network_, sinks_, options);
  }
  RigSession& Open(const Epoch& router = kTestRouter, uint64_t number = 1, bool hello = true) {
    sessions_.push_back(std::make_unique<RigSession>(world_, *worker_, router, number, hello));
    world_.RunFor(milliseconds(1));
    return *sessions_.back();
  }
  DecoderState State(uint64_t request, uint32_t prompt = 40, uint32_t max_tokens = 10) {
    DecoderState state = engine::FixtureState(FixturePrompt(prompt, request), max_tokens, request);
    state.attempt = RigAttempt(request);
    return state;
  }
  std::vector<TokenId> Expected(const DecoderState& state) {
    return engine::FakeContinuation(engine::FakeLayout(16), engine::FixtureVocab(), 512, state);
  }
  double Metric(const std::string& name) {
    return worker_->metrics.AddGauge(name, "").Get().Value();
  }

  double Violations() {
    return worker_->metrics.AddCounter("baton_kv_self_check_violations_total", "").Get().Value();
  }

  SimWorld world_;
  kvtransfer::InProcessNetwork network_;
  RigSinks sinks_;
  std::unique_ptr<RigWorker> worker_;
  std::vector<std::unique_ptr<RigSession>> sessions_;
};

TEST_F(WorkerCoreTest, HelloIsAnsweredWithWhatTheWorkerIs) {
  RigSession& session = Open();
  ASSERT_FALSE(session.messages.empty());
  const v1::WorkerHello& hello = session.messages[0].events(0).hello();
  EXPECT_EQ(proto::Get(hello.worker_epoch()), worker_->core->options().epoch);
  EXPECT_EQ(hello.session_number(), 1u);
  EXPECT_EQ(hello.protocol_version(), kProtocolVersion);
  EXPECT_EQ(hello.role(), v1::ROLE_DECODE);
  EXPECT_EQ(hello.name(), "decode");
  EXPECT_EQ(hello.model(), "fake");
  EXPECT_EQ(hello.block_size(), 16u);
  EXPECT_EQ(hello.pool_blocks_size(), 2);
  EXPECT_EQ(hello.context_length(), 512u);
  EXPECT_EQ(hello.transfer_address(), "decode");
  EXPECT_EQ(hello.lease_ms(), 10000u);
  EXPECT_EQ(hello.step_tokens(), 64u);  // as the rig's options say
  EXPECT_FALSE(hello.draining());
  EXPECT_EQ(session.messages[0].events(1).load().free_blocks(0), 64u);
}

TEST_F(WorkerCoreTest, WithoutAStepSizeStepsArePlannedUpToTheMost) {
  RigWorker::Options options;
  options.step_tokens = 0;
  Start(options);
  RigSession& session = Open();
  EXPECT_EQ(session.messages[0].events(0).hello().step_tokens(), kMostPlannedTokens);
  const DecoderState state = State(1, 400, 10);
  ASSERT_TRUE(session.Submit(state).ok());
  world_.RunFor(seconds(2));
  EXPECT_EQ(session.TokensOf(state.attempt), Expected(state));
}

TEST_F(WorkerCoreTest, TheLoadSaysWhatStepsTake) {
  RigSession& session = Open();
  EXPECT_FALSE(session.messages[0].events(1).load().has_step_times());
  DecoderState state = State(1, 100, 50);
  state.stop.ignore_eos = true;
  ASSERT_TRUE(session.Submit(state).ok());
  world_.RunFor(seconds(2));
  uint64_t most_keys = 0;
  v1::WorkerLoad last;
  for (const v1::SessionResponse& message : session.messages) {
    for (const v1::WorkerEvent& event : message.events()) {
      if (event.has_load()) last = event.load();
      most_keys = std::max(most_keys, last.decode_keys());
    }
  }
  EXPECT_GE(most_keys, 101u);
  EXPECT_LE(most_keys, 150u);
  EXPECT_EQ(last.decode_keys(), 0u);
  EXPECT_GT(last.step_times().step_seconds(), 0);
  EXPECT_GT(last.step_times().prompt_token_seconds(), 0);
  EXPECT_GT(last.step_times().decode_row_seconds(), 0);
  EXPECT_GE(last.step_times().prompt_key_seconds(), 0);
  EXPECT_GE(last.step_times().decode_key_seconds(), 0);
  EXPECT_GT(last.prefill_tokens_per_second(), 0);
  EXPECT_GT(last.decode_step_seconds(), 0);
}

TEST_F(WorkerCoreTest, FirstMessageMustBeAHello) {
  RigSession& session = Open(kTestRouter, 1, false);
  session.Heartbeat();
  world_.RunFor(milliseconds(1));
  ASSERT_TRUE(session.closed.has_value());
  EXPECT_EQ(session.closed->code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(WorkerCoreTest, AnotherProtocolVersionIsRefused) {
  RigSession& session = Open(kTestRouter, 1, false);
  v1::SessionRequest request;
  proto::Set(kTestRouter, *request.mutable_hello()->mutable_router_epoch());
  request.mutable_hello()->set_protocol_version(kProtocolVersion + 1);
  session.Send(request);
  world_.RunFor(milliseconds(1));
  ASSERT_TRUE(session.closed.has_value());
  EXPECT_EQ(session.closed->code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(WorkerCoreTest, AttemptOfAnotherRouterEndsTheSession) {
  RigSession& session = Open();
  session.Cancel({{7, 7}, 1, 1});
  world_.RunFor(milliseconds(1));
  ASSERT_TRUE(session.closed.has_value());
  EXPECT_EQ(session.closed->code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WorkerCoreTest, HeartbeatsComeEverySecondAndKeepAQuietRouter) {
  RigSession& session = Open();
  world_.RunFor(seconds(60));
  EXPECT_FALSE(session.closed.has_value());
  EXPECT_GE(session.messages.size(), 60u);
  EXPECT_LE(session.messages.size(), 62u);
}

TEST_F(WorkerCoreTest, SilenceForALeaseReleasesAllWorkOfTheRouter) {
  RigSession& session = Open();
  ASSERT_TRUE(session.Submit(State(1, 100, 400)).ok());
  session.beats = false;
  world_.RunFor(milliseconds(1));
  EXPECT_FALSE(worker_->all_free());
  world_.RunFor(seconds(11));
  ASSERT_TRUE(session.closed.has_value());
  EXPECT_TRUE(worker_->core->idle());
  EXPECT_TRUE(worker_->all_free());
  EXPECT_EQ(worker_->metrics.AddCounter("baton_leases_expired_total", "").Get().Value(), 1);
}

TEST_F(WorkerCoreTest, AWorkerThatStoodStillKeepsItsRoutersAndTheirWork) {
  RigSession& session = Open();
  const DecoderState state = State(1, 100, 400);
  ASSERT_TRUE(session.Submit(state).ok());
  worker_->executor.StandStill(world_.now() + seconds(60), /*unread=*/milliseconds(300));
  world_.RunFor(seconds(90));
  EXPECT_FALSE(session.closed.has_value());
  EXPECT_EQ(session.TokensOf(state.attempt), Expected(state));
  EXPECT_EQ(worker_->metrics.AddCounter("baton_leases_expired_total", "").Get().Value(), 0);
}

TEST_F(WorkerCoreTest, CrashOfTheRouterReleasesAllItsWorkAndNobodyElses) {
  const Epoch other{8, 8};
  RigSession& crashed = Open();
  RigSession& alive = Open(other, 5);
  DecoderState mine = State(2);
  mine.attempt.router = other;
  ASSERT_TRUE(crashed.Submit(State(1, 100, 400)).ok());
  ASSERT_TRUE(alive.Submit(mine).ok());
  crashed.Crash();
  world_.RunFor(seconds(1));
  EXPECT_EQ(alive.TokensOf(mine.attempt), Expected(mine));
  EXPECT_TRUE(crashed.EventsOf(RigAttempt(1)).empty());
  EXPECT_TRUE(worker_->all_free());
}

TEST_F(WorkerCoreTest, SecondSessionOfARouterEndsTheFirstAndItsWork) {
  RigSession& first = Open();
  ASSERT_TRUE(first.Submit(State(1, 100, 400)).ok());
  RigSession& second = Open(kTestRouter, 2);
  world_.RunFor(milliseconds(500));
  EXPECT_TRUE(first.closed.has_value());
  EXPECT_TRUE(worker_->all_free());
  EXPECT_FALSE(first.Submit(State(3)).ok());
  EXPECT_TRUE(second.Submit(State(4)).ok());
}

TEST_F(WorkerCoreTest, UnifiedRequestGivesTheRightTokensAndOneEnd) {
  RigSession& session = Open();
  for (const uint32_t prompt : {1u, 15u, 16u, 17u, 200u}) {
    const DecoderState state = State(prompt, prompt, 20);
    ASSERT_TRUE(session.Submit(state).ok());
    world_.RunFor(seconds(1));
    EXPECT_EQ(session.TokensOf(state.attempt), Expected(state));
    EXPECT_TRUE(session.Finished(state.attempt));
    const std::vector<v1::WorkerEvent> events = session.EventsOf(state.attempt);
    for (size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i].token().position(), prompt + i);
      EXPECT_EQ(events[i].token().finish_reason() == v1::FINISH_REASON_UNSPECIFIED,
                i + 1 < events.size());
    }
  }
  EXPECT_TRUE(worker_->core->idle());
  EXPECT_TRUE(worker_->all_free());
  EXPECT_TRUE(worker_->core->pool().CheckIntegrity().ok());
}

TEST_F(WorkerCoreTest, TokensOfOneStepTravelInOneMessage) {
  RigSession& session = Open();
  for (uint64_t request = 1; request <= 8; ++request) {
    ASSERT_TRUE(session.Submit(State(request, 5, 50)).ok());
  }
  world_.RunFor(seconds(1));
  size_t full = 0;
  for (const v1::SessionResponse& message : session.messages) {
    int tokens = 0;
    for (const v1::WorkerEvent& event : message.events()) tokens += event.has_token() ? 1 : 0;
    EXPECT_LE(tokens, 8);
    full += tokens == 8 ? 1 : 0;
  }
  EXPECT_GE(full, 1u);
}

TEST_F(WorkerCoreTest, SubmitIsRefusedByName) {
  RigSession& session = Open();
  const auto code = [&](auto change) {
    v1::SubmitRequest request = session.MakeSubmit(State(1), {});
    change(request);
    const absl::Status status = worker_->core->Submit(request);
    EXPECT_FALSE(status.ok());
    return status;
  };
  using absl::StatusCode;
  absl::Status status = code([](auto& r) { r.mutable_worker_epoch()->set_lo(77); });
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message().substr(0, 11), kReasonStaleEpoch);
  status = code([](auto& r) { r.set_session_number(2); });
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message().substr(0, 13), kReasonStaleSession);
  status = code([](auto& r) { r.mutable_state()->mutable_attempt()->mutable_router()->set_hi(1); });
  EXPECT_EQ(status.message().substr(0, 13), kReasonStaleSession);
  const auto invalid = [&](auto change) {
    EXPECT_EQ(code(change).code(), StatusCode::kInvalidArgument);
  };
  invalid([](auto& r) { r.mutable_state()->clear_prompt(); });
  invalid([](auto& r) { r.mutable_state()->add_prompt(-1); });
  invalid([](auto& r) { r.mutable_state()->add_prompt(258); });
  invalid([](auto& r) { r.mutable_state()->mutable_stop()->set_max_tokens(0); });
  invalid([](auto& r) {
    for (int i = 0; i < 512; ++i) r.mutable_state()->add_prompt(1);
  });
  status = code([](auto& r) {
    while (r.state().choices_size() < 17) r.mutable_state()->add_choices();
  });
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("choices: 17 exceeds the limit of 16"), std::string::npos);
  EXPECT_EQ(code([](auto& r) { r.add_sinks()->set_address("x"); }).code(),
            StatusCode::kUnimplemented);
  EXPECT_TRUE(worker_->core->idle());
}

TEST_F(WorkerCoreTest, RequestThatNeverFitsIsRefusedWithBothNumbers) {
  RigWorker::Options options;
  options.blocks = 4;
  Start(options);
  RigSession& session = Open();
  const absl::Status status = session.Submit(State(1, 40, 100));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("9 KV blocks"), std::string::npos) << status;
  EXPECT_NE(status.message().find("has 4"), std::string::npos) << status;
  // Two blocks of prompt and one for each choice.
  DecoderState choices = State(2, 40, 5);
  choices.choices.resize(3);
  EXPECT_NE(session.Submit(choices).message().find("5 KV blocks"), std::string::npos);
  choices.choices.resize(2);
  EXPECT_TRUE(session.Submit(choices).ok());
}

TEST_F(WorkerCoreTest, LiveAndOverAttemptsAreNotTakenAgain) {
  RigSession& session = Open();
  const DecoderState state = State(1);
  ASSERT_TRUE(session.Submit(state).ok());
  EXPECT_EQ(session.Submit(state).code(), absl::StatusCode::kAlreadyExists);
  world_.RunFor(seconds(1));
  EXPECT_EQ(session.Submit(state).message().substr(0, 9), kReasonTombstone);
  session.Cancel(RigAttempt(2));  // never seen here
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(session.Submit(State(2)).message().substr(0, 9), kReasonTombstone);
  world_.RunFor(seconds(21));  // two leases
  EXPECT_TRUE(session.Submit(State(2)).ok());
}

TEST_F(WorkerCoreTest, QueueFullIsResourceExhausted) {
  RigWorker::Options options;
  options.blocks = 8;
  options.max_queue = 2;
  Start(options);
  RigSession& session = Open();
  for (uint64_t request = 1; request <= 2; ++request) {
    ASSERT_TRUE(session.Submit(State(request, 64, 60)).ok());
  }
  EXPECT_EQ(session.Submit(State(3, 64, 60)).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(WorkerCoreTest, DrainingRefusesNewWorkAndFinishesTheOld) {
  RigSession& session = Open();
  const DecoderState state = State(1);
  ASSERT_TRUE(session.Submit(state).ok());
  worker_->core->Drain();
  EXPECT_EQ(session.Submit(State(2)).code(), absl::StatusCode::kUnavailable);
  world_.RunFor(seconds(1));
  EXPECT_TRUE(session.Finished(state.attempt));
  EXPECT_TRUE(session.messages.back().events(0).load().draining());
}

TEST_F(WorkerCoreTest, TheLoadCountsChoicesThatRunAndRequestsThatWait) {
  RigWorker::Options options;
  options.blocks = 24;
  Start(options);
  RigSession& session = Open();
  DecoderState wide = State(1, 64, 60);
  wide.choices.resize(5);  // 4 shared blocks, and one of each choice to begin with
  ASSERT_TRUE(session.Submit(wide).ok());
  ASSERT_TRUE(session.Submit(State(2, 250, 60)).ok());  // 17 blocks to begin with
  world_.RunFor(milliseconds(2));
  EXPECT_EQ(worker_->core->Load().running(), 5u);
  EXPECT_EQ(worker_->core->Load().waiting(), 1u);
}

TEST_F(WorkerCoreTest, TheLoadOffersTheBlocksThatAreNotLeftForThoseThatGrow) {
  RigSession& session = Open();
  DecoderState wide = State(1, 64, 60);
  wide.choices.resize(5);  // 4 shared blocks, and one of each choice to begin with
  ASSERT_TRUE(session.Submit(wide).ok());
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(worker_->free_blocks(), 64u - 9);
  EXPECT_EQ(worker_->core->Load().free_blocks(0), 64u - 9 - 3);
}

TEST_F(WorkerCoreTest, ARequestThatWaitsIsAsMuchWorkAsIsNotCached) {
  RigWorker::Options options;
  options.blocks = 8;
  Start(options);
  RigSession& session = Open();
  DecoderState first = State(1, 64, 60);
  first.stop.ignore_eos = true;
  first.cache_namespace = "space";
  ASSERT_TRUE(session.Submit(first).ok());
  while (session.TokensOf(first.attempt).empty()) world_.RunFor(milliseconds(1));
  DecoderState second = first;
  second.attempt = RigAttempt(2);
  ASSERT_TRUE(session.Submit(second).ok());
  EXPECT_EQ(worker_->core->Load().waiting(), 1u);
  EXPECT_EQ(worker_->core->Load().queued_prefill_tokens(), 16u);
  second.attempt = RigAttempt(3);
  second.cache_namespace = "another";
  ASSERT_TRUE(session.Submit(second).ok());
  EXPECT_EQ(worker_->core->Load().queued_prefill_tokens(), 16u + 64u);
}

TEST_F(WorkerCoreTest, CancelFreesBlocksWhetherItWaitsOrRuns) {
  RigWorker::Options options;
  options.blocks = 8;
  Start(options);
  RigSession& session = Open();
  ASSERT_TRUE(session.Submit(State(1, 110, 17)).ok());  // all 8 blocks
  ASSERT_TRUE(session.Submit(State(2, 64, 60)).ok());   // waits
  world_.RunFor(milliseconds(2));
  EXPECT_EQ(worker_->free_blocks(), 0u);
  EXPECT_EQ(worker_->core->Load().waiting(), 1u);
  session.Cancel(RigAttempt(2));
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(worker_->core->Load().waiting(), 0u);
  session.Cancel(RigAttempt(1));
  world_.RunFor(milliseconds(10));
  EXPECT_TRUE(worker_->all_free());
  EXPECT_TRUE(worker_->core->idle());
  EXPECT_TRUE(session.EventsOf(RigAttempt(2)).empty());
}

TEST_F(WorkerCoreTest, DeadlineEndsWaitingAndRunningRequests) {
  RigWorker::Options options;
  options.blocks = 8;
  options.model.step_cost = milliseconds(20);
  Start(options);
  RigSession& session = Open();
  DecoderState running = State(1, 64, 60);
  running.remaining = milliseconds(300);
  DecoderState waiting = State(2, 64, 60);
  waiting.remaining = milliseconds(100);
  DecoderState passed = State(3, 64, 60);
  passed.remaining = milliseconds(-5);
  for (const DecoderState& state : {running, waiting, passed}) {
    ASSERT_TRUE(session.Submit(state).ok());
  }
  world_.RunFor(seconds(1));
  for (const DecoderState& state : {running, waiting, passed}) {
    const std::vector<v1::WorkerEvent> events = session.EventsOf(state.attempt);
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.back().failed().code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
    EXPECT_EQ(events.back().failed().cause(), v1::CAUSE_DEADLINE);
  }
  EXPECT_GT(session.TokensOf(running.attempt).size(), 0u);
  EXPECT_TRUE(worker_->all_free());
}

TEST_F(WorkerCoreTest, ADeadlineBeyondWhatAClockHoldsIsNoDeadline) {
  Start({});
  RigSession& session = Open();
  DecoderState state = State(1, 20, 10);
  state.remaining = Duration::max();
  ASSERT_TRUE(session.Submit(state).ok());
  world_.RunFor(seconds(1));
  EXPECT_TRUE(session.Finished(state.attempt));
}

TEST_F(WorkerCoreTest, OlderRequestOfAnyRouterGetsRoomFirst) {
  RigWorker::Options options;
  options.blocks = 8;
  Start(options);
  RigSession& session = Open();
  ASSERT_TRUE(session.Submit(State(1, 64, 30)).ok());
  DecoderState young = State(2, 64, 60);
  DecoderState old = State(3, 64, 60);
  old.age = seconds(30);
  ASSERT_TRUE(session.Submit(young).ok());
  ASSERT_TRUE(session.Submit(old).ok());
  ASSERT_TRUE(world_.RunUntilTrue([&] { return session.Finished(old.attempt); },
                                  world_.now() + seconds(5)));
  EXPECT_FALSE(session.Finished(young.attempt));
  world_.RunFor(seconds(2));
  EXPECT_EQ(session.TokensOf(young.attempt), Expected(young));
}

TEST_F(WorkerCoreTest, AttachToWhatIsNotHereIsAnsweredWithLost) {
  RigSession& session = Open();
  session.Attach(RigAttempt(1));
  session.Cancel(RigAttempt(2));
  session.Attach(RigAttempt(2));
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(session.EventsOf(RigAttempt(1)).at(0).lost().cause(), v1::CAUSE_RELEASED);
  EXPECT_EQ(session.EventsOf(RigAttempt(2)).at(0).lost().cause(), v1::CAUSE_TOMBSTONE);
}

// The metric that must stay 0 in production.
TEST_F(WorkerCoreTest, ABlockThatNobodyGivesBackIsCountedWhenTheWorkerIsIdle) {
  const auto run_one = [this](RigSession& session, uint64_t request) {
    ASSERT_TRUE(session.Submit(State(request)).ok());
    world_.RunFor(seconds(2));
    EXPECT_TRUE(worker_->core->idle());
  };
  RigSession& session = Open();
  run_one(session, 1);
  EXPECT_EQ(Violations(), 0);
  kv::BlockPool& pool = worker_->core->context().room.pool();
  {
    kv::BlockLease leaked = *pool.Take({1, 1});
    run_one(session, 2);
    EXPECT_EQ(Violations(), 1);
    const kv::BlockPin pinned = pool.Pin(leaked.blocks());
    leaked.Reset();  // quarantined for good
    run_one(session, 3);
    EXPECT_EQ(Violations(), 2);
  }
  run_one(session, 4);
  EXPECT_EQ(Violations(), 2);
}

TEST_F(WorkerCoreTest, LoadNamesTheLastSubmitItIncludes) {
  RigSession& session = Open();
  ASSERT_TRUE(session.Submit(State(1, 100, 400)).ok());
  ASSERT_TRUE(session.Submit(State(2, 100, 5)).ok());
  world_.RunFor(milliseconds(1));
  uint64_t last = 0;
  for (const v1::SessionResponse& message : session.messages) {
    for (const v1::WorkerEvent& event : message.events()) {
      if (event.has_load()) last = event.load().last_submit_number();
    }
  }
  EXPECT_EQ(last, 2u);
}

}  // namespace
}  // namespace baton::worker
