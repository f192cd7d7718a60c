#include <deque>
#include <limits>

#include "router/router_core_fixture.h"

namespace baton::router {
namespace {

TEST_F(SplitTest, TokensCrossOnceInOrderAndTheRequestEndsOnce) {
  Seen seen;
  Ask(seen);
  ASSERT_EQ(p_->submits.size(), 1u);
  ASSERT_EQ(p_->submits[0].sinks_size(), 1);
  EXPECT_EQ(p_->submits[0].sinks(0).address(), "transfer-d");
  EXPECT_TRUE(d_->submits.empty());
  const AttemptId id = p_->last_attempt();
  p_->Started(id, *d_);
  Run();
  ASSERT_EQ(d_->attaches.size(), 1u);
  EXPECT_EQ(d_->attaches[0], id);
  p_->FirstToken(id, 20, 100);
  Run();
  EXPECT_EQ(seen.tokens, std::vector<TokenId>({100}));
  p_->HandedOff(id, milliseconds(3), 4096);
  d_->Token(id, 20, 100);  // the sink's events begin with the first token again
  d_->Token(id, 21, 101);
  d_->Token(id, 22, 102, true);
  Run();
  EXPECT_EQ(seen.tokens, std::vector<TokenId>({100, 101, 102}));
  EXPECT_EQ(seen.positions, std::vector<uint32_t>({20, 21, 22}));
  EXPECT_EQ(seen.ends, 1);
  EXPECT_TRUE(seen.status.ok()) << seen.status;
  EXPECT_EQ(seen.summary.prefill_worker, "p");
  EXPECT_EQ(seen.summary.decode_worker, "d");
  EXPECT_EQ(seen.summary.timings.handoff, milliseconds(3));
  EXPECT_TRUE(p_->cancels.empty());
  EXPECT_TRUE(d_->cancels.empty());
  EXPECT_EQ(core_->live_requests(), 0u);
}

TEST_F(SplitTest, TheEndWaitsShortlyForTheReportOfTheHandoff) {
  for (const bool reported : {true, false}) {
    Seen seen;
    RunToFirstToken(seen);
    const AttemptId id = p_->last_attempt();
    d_->Token(id, 20, 100);
    d_->Token(id, 21, 101, true);
    Run();
    EXPECT_EQ(seen.tokens.size(), 2u);
    EXPECT_EQ(seen.ends, 0);
    if (reported) p_->HandedOff(id, milliseconds(7), 4096);
    Run(reported ? milliseconds(10) : milliseconds(100));
    EXPECT_EQ(seen.ends, 1);
    EXPECT_TRUE(seen.status.ok());
    EXPECT_EQ(seen.summary.timings.handoff, milliseconds(reported ? 7 : 0));
    EXPECT_EQ(core_->live_requests(), 0u);
  }
}

TEST_F(SplitTest, TheStagesOfTheFirstTokenAddUp) {
  Seen seen;
  RunToFirstToken(seen);
  d_->Token(p_->last_attempt(), 20, 100);
  d_->Token(p_->last_attempt(), 21, 101, true);
  Run(milliseconds(200));
  const RequestTimings& t = seen.summary.timings;
  EXPECT_GT(t.time_to_first_token, Duration{0});
  EXPECT_EQ(t.time_to_first_token, t.queue + t.route + t.reserve_wait + t.prefill);
  EXPECT_GE(t.total, t.time_to_first_token);
}

TEST_F(SplitTest, TimesThatNoWorkerCanHaveTakenDoNotOverflow) {
  Seen seen;
  RunToFirstToken(seen);
  d_->Token(p_->last_attempt(), 20, 100);
  d_->Token(p_->last_attempt(), 21, 101, true);
  p_->HandedOff(p_->last_attempt(), Duration(-1), 4096);  // 2^64 - 1 on the wire
  Run(milliseconds(200));
  EXPECT_TRUE(seen.status.ok());
  EXPECT_GT(seen.summary.timings.handoff, Duration{0});
  EXPECT_EQ(seen.summary.timings.first_decode_step, Duration{0});
}

TEST_F(SplitTest, AFirstTokenThatEndsTheRequestNeedsNoSink) {
  Seen seen;
  Ask(seen);
  p_->Started(p_->last_attempt(), *d_);
  p_->FirstToken(p_->last_attempt(), 20, 100, true);
  Run();
  EXPECT_EQ(seen.ends, 1);
  EXPECT_TRUE(seen.status.ok());
  EXPECT_EQ(seen.summary.decode_worker, "");
}

TEST_F(SplitTest, ASinkThatOvertakesTheSourceIsBelievedAndTheSourceMayRepeat) {
  Seen seen;
  Ask(seen);
  const AttemptId id = p_->last_attempt();
  p_->Started(id, *d_);
  Run();
  d_->Token(id, 20, 100);
  d_->Token(id, 21, 101);
  Run();
  p_->FirstToken(id, 20, 100);
  d_->Token(id, 22, 102, true);
  Run(milliseconds(200));
  EXPECT_EQ(seen.tokens, std::vector<TokenId>({100, 101, 102}));
  EXPECT_TRUE(seen.status.ok());
}

TEST_F(SplitTest, ARepeatedPositionWithAnotherTokenIsInternalAndCounted) {
  Seen seen;
  RunToFirstToken(seen);
  d_->Token(p_->last_attempt(), 20, 99);
  Run();
  EXPECT_EQ(seen.ends, 1);
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(seen.status), "TOKEN_MISMATCH");
  EXPECT_EQ(Metric("baton_router_token_mismatches_total"), 1);
  EXPECT_EQ(p_->cancels.size(), 1u);
  EXPECT_EQ(d_->cancels.size(), 1u);
}

TEST_F(SplitTest, AGapNeverPasses) {
  Seen seen;
  RunToFirstToken(seen);
  d_->Token(p_->last_attempt(), 22, 101);
  Run();
  EXPECT_EQ(seen.tokens.size(), 1u);
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kInternal);
}

TEST_F(SplitTest, CancelGoesToTheSourceAndToEveryNamedSinkInAnyState) {
  for (int stage = 0; stage < 4; ++stage) {
    SCOPED_TRACE(stage);
    p_->cancels.clear();
    d_->cancels.clear();
    Seen seen;
    const uint64_t number = Ask(seen);
    const AttemptId id = p_->last_attempt();
    if (stage >= 1) p_->Started(id, *d_);
    Run();
    if (stage >= 2) p_->FirstToken(id, 20, 100);
    Run();
    if (stage >= 3) d_->Token(id, 20, 100);
    Run();
    core_->Cancel(number, absl::CancelledError("client went away"));
    Run();
    EXPECT_EQ(seen.ends, 1);
    EXPECT_EQ(seen.status.code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(p_->cancels, std::vector<AttemptId>({id}));
    EXPECT_EQ(d_->cancels, std::vector<AttemptId>({id}));
    d_->Token(id, 21, 101);
    Run();
    EXPECT_EQ(seen.ends, 1);
  }
}

TEST_F(SplitTest, WorkForAnEndedAttemptIsAnsweredWithCancel) {
  Seen seen;
  const uint64_t number = Ask(seen);
  const AttemptId id = p_->last_attempt();
  core_->Cancel(number, absl::CancelledError(""));
  Run();
  p_->cancels.clear();
  d_->cancels.clear();
  p_->Started(id, *d_);
  Run();
  EXPECT_EQ(p_->cancels, std::vector<AttemptId>({id}));
  EXPECT_EQ(d_->cancels, std::vector<AttemptId>({id}));
  EXPECT_TRUE(d_->attaches.empty());
  p_->FirstToken(id, 20, 100);
  Run();
  EXPECT_EQ(p_->cancels.size(), 2u);
}

TEST_F(SplitTest, TheDeadlineEndsARequestThatNobodyAnswers) {
  Seen seen;
  Ask(seen, 20, 8, milliseconds(500));
  EXPECT_EQ(p_->submits[0].state().remaining_ns(),
            std::chrono::nanoseconds(milliseconds(500)).count());
  Run(seconds(1));
  EXPECT_EQ(seen.ends, 1);
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(p_->cancels.size(), 1u);
}

TEST_F(SplitTest, NoRoomIsPlacedAgainAsANewAttemptAndOldEventsAreDropped) {
  Seen seen;
  Ask(seen);
  const AttemptId first = p_->last_attempt();
  p_->NoRoom(first);
  Run(milliseconds(100));
  ASSERT_EQ(p_->submits.size(), 2u);
  const AttemptId second = p_->last_attempt();
  EXPECT_EQ(second.request, first.request);
  EXPECT_EQ(second.attempt, first.attempt + 1);
  EXPECT_EQ(p_->cancels, std::vector<AttemptId>({first}));
  EXPECT_GT(p_->submits[1].state().age_ns(), 0u);
  p_->FirstToken(first, 20, 77);
  Run();
  EXPECT_TRUE(seen.tokens.empty());
  RunAttemptToFirstToken();
  EXPECT_EQ(seen.tokens, std::vector<TokenId>({100}));
}

TEST_F(SplitTest, ARevokedReservationIsReplayedWithoutRepeatingTokens) {
  Seen seen;
  RunToFirstToken(seen);
  d_->Lost(p_->last_attempt(), worker::v1::CAUSE_NO_ROOM);
  Run(milliseconds(100));
  ASSERT_EQ(p_->submits.size(), 2u);
  RunAttemptToFirstToken();
  EXPECT_EQ(seen.tokens, std::vector<TokenId>({100}));
  d_->Token(p_->last_attempt(), 20, 100);
  d_->Token(p_->last_attempt(), 21, 101, true);
  Run(milliseconds(200));
  EXPECT_EQ(seen.tokens, std::vector<TokenId>({100, 101}));
  EXPECT_TRUE(seen.status.ok());
}

TEST_F(SplitTest, AttemptsAreBounded) {
  Seen seen;
  Ask(seen);
  for (int i = 0; i < 100 && seen.ends == 0; ++i) {
    p_->Failed(p_->last_attempt(), absl::StatusCode::kUnavailable, worker::v1::CAUSE_DRAINING);
    Run(seconds(2));
  }
  EXPECT_EQ(seen.ends, 1);
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(p_->submits.size(), CoreOptions().max_attempts);
}

TEST_F(SplitTest, ASubmitWithoutAnAnswerIsFollowedByCancelAndPlacedAgain) {
  p_->submit_answer.reset();
  Seen seen;
  Ask(seen);
  const AttemptId first = p_->last_attempt();
  Run(seconds(5));
  EXPECT_EQ(p_->cancels, std::vector<AttemptId>({first}));
  EXPECT_EQ(p_->submits.size(), 1u);
  EXPECT_EQ(d_->submits.size(), 1u);  // a worker that does not answer is not asked again at once
  EXPECT_EQ(seen.ends, 0);
}

TEST_F(SplitTest, LosingTheSourceAfterTheFirstTokenIsNotAnEnd) {
  Seen seen;
  RunToFirstToken(seen);
  const AttemptId id = p_->last_attempt();
  p_->Crash();
  Run();
  EXPECT_EQ(seen.ends, 0);
  d_->Token(id, 20, 100);
  d_->Token(id, 21, 101, true);
  Run();
  EXPECT_TRUE(seen.status.ok()) << seen.status;
  EXPECT_EQ(seen.tokens.size(), 2u);
}

TEST_F(SplitTest, LosingTheSourceBeforeTheFirstTokenEndsUnavailable) {
  Seen seen;
  Ask(seen);
  p_->Started(p_->last_attempt(), *d_);
  Run();
  p_->Crash();
  Run();
  EXPECT_EQ(seen.ends, 1);
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(seen.status), "WORKER_LOST");
  EXPECT_EQ(d_->cancels.size(), 1u);
}

TEST_F(SplitTest, LosingTheSinkEndsUnavailable) {
  Seen seen;
  RunToFirstToken(seen);
  d_->Token(p_->last_attempt(), 20, 100);
  Run();
  d_->Crash();
  Run();
  EXPECT_EQ(seen.ends, 1);
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(SplitTest, ASinkThatIsSilentIsLostAfterFourSeconds) {
  Seen seen;
  RunToFirstToken(seen);
  d_->answers_heartbeats = false;
  d_->Send({});
  Run(milliseconds(3900));
  EXPECT_EQ(seen.ends, 0);
  Run(milliseconds(200));
  EXPECT_EQ(seen.ends, 1);
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(p_->sessions_opened, 1);
}

// From our hello on it takes reservations for us, whether its own hello has come or not.
TEST_F(SplitTest, ASinkThatComesBackIsToldOfAnEndBeforeItsHelloHasArrived) {
  Seen seen;
  Ask(seen);
  const AttemptId id = p_->last_attempt();
  d_->answers_hello = false;
  d_->Crash();
  Run(milliseconds(200));
  ASSERT_EQ(d_->sessions_opened, 2);
  p_->Started(id, *d_);
  Run();
  EXPECT_EQ(seen.ends, 1);
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(d_->cancels, std::vector<AttemptId>({id}));
  p_->Started(id, *d_);  // late
  Run();
  EXPECT_EQ(d_->cancels.size(), 2u);
}

TEST_F(SplitTest, ACancelThatAWorkerMayNotHaveHeardIsRepeatedWhenItComesBack) {
  Seen seen;
  const uint64_t number = Ask(seen);
  const AttemptId id = p_->last_attempt();
  d_->Crash();
  Run(milliseconds(1));
  core_->Cancel(number, absl::CancelledError("client went away"));
  Run(milliseconds(1));
  EXPECT_TRUE(d_->cancels.empty());
  p_->Crash();
  Run(milliseconds(200));
  EXPECT_EQ(d_->cancels, std::vector<AttemptId>({id}));
  EXPECT_EQ(p_->cancels, std::vector<AttemptId>({id, id}));
  Run(seconds(10));
  d_->Crash();
  Run(milliseconds(200));
  EXPECT_EQ(d_->cancels.size(), 1u);  // long ago
}

TEST_F(SplitTest, AWorkerThatComesBackServesAgain) {
  d_->Restart(Epoch{200, 2});
  Run(milliseconds(5));
  Seen refused;
  Ask(refused);
  Run(seconds(3));
  Seen seen;
  Ask(seen);
  ASSERT_GE(p_->submits.size(), 1u);
  EXPECT_EQ(p_->submits.back().sinks(0).epoch().hi(), 200u);
}

TEST_F(SplitTest, WithoutALivePrefillWorkerTheDecodeWorkerServesAlone) {
  p_->Crash();
  Run(milliseconds(5));
  Seen seen;
  Ask(seen);
  ASSERT_EQ(d_->submits.size(), 1u);
  EXPECT_EQ(d_->submits[0].sinks_size(), 0);
  const AttemptId id = d_->last_attempt();
  d_->Token(id, 20, 100);
  d_->Token(id, 21, 101, true);
  Run();
  EXPECT_EQ(seen.tokens, std::vector<TokenId>({100, 101}));
  EXPECT_EQ(seen.summary.prefill_worker, "");
  EXPECT_EQ(seen.summary.decode_worker, "d");
}

TEST_F(SplitTest, ARequestThatCanNeverFitIsRefusedWithBothNumbers) {
  Seen seen;
  options_.default_max_tokens = 512;
  core_.reset();
  workers_.clear();
  FakeWorker::Options small;
  small.name = "small";
  small.pool_blocks = 4;
  options_.workers.clear();
  AddWorker(small);
  Start();
  Ask(seen, 20, 100);
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(seen.status.message().find("need 8 KV blocks"), absl::string_view::npos) << seen.status;
  EXPECT_NE(seen.status.message().find("has 4"), absl::string_view::npos);
  Seen fits;
  Ask(fits, 20, 45);
  EXPECT_EQ(fits.ends, 0);
}

TEST_F(SplitTest, APromptOfContextLengthIsRefused) {
  Seen seen;
  Ask(seen, 1024, 1);
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(seen.status.message().find("context of 1024"), absl::string_view::npos);
}

TEST_F(SplitTest, MaxTokensIsCappedByTheContextAndDefaulted) {
  Seen a;
  Ask(a, 1000, 100);
  EXPECT_EQ(p_->submits.back().state().stop().max_tokens(), 24u);
  Seen b;
  Ask(b, 20, 0);
  EXPECT_EQ(p_->submits.back().state().stop().max_tokens(), 512u);
}

TEST_F(SplitTest, TheQueueIsBoundedAndMovesWhenAPromptIsDone) {
  options_.max_queue = 2;
  options_.prompt_window = 1;
  Start();
  std::vector<Seen> seen(4);
  for (Seen& s : seen) Ask(s);
  EXPECT_EQ(seen[3].ends, 1);
  EXPECT_EQ(seen[3].status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(seen[3].status), "QUEUE_FULL");
  EXPECT_EQ(core_->waiting_requests(), 2u);
  EXPECT_EQ(Metric("baton_requests_waiting"), 2);
  EXPECT_EQ(Metric("baton_requests_running"), 1);
  const size_t before = p_->submits.size();
  RunAttemptToFirstToken();
  EXPECT_EQ(p_->submits.size(), before + 1);
  EXPECT_EQ(core_->waiting_requests(), 1u);
}

TEST_F(RouterCoreTest, WithoutAWorkerRequestsAreUnavailableAtOnce) {
  FakeWorker::Options mute;
  mute.name = "mute";
  AddWorker(mute).answers_hello = false;
  Start();
  EXPECT_FALSE(core_->CanServe());
  Seen seen;
  Ask(seen);
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(seen.status), "NO_WORKER");
}

TEST_F(RouterCoreTest, AWorkerWithAnotherVocabularyIsRefused) {
  options_.vocab_hash = Digest{1, 2};
  AddWorker("d", false);
  Start();
  Run(seconds(5));
  EXPECT_FALSE(core_->CanServe());
  EXPECT_GE(workers_["d"]->sessions_opened, 2);
}

TEST_F(RouterCoreTest, InflightIsCountedPerWorkerAndReturnsToZero) {
  AddWorker("d", false);
  Start();
  Seen seen;
  Ask(seen);
  EXPECT_EQ(Metric("baton_router_inflight{worker=\"d\"}"), 1);
  workers_["d"]->Token(workers_["d"]->last_attempt(), 20, 100, true);
  Run();
  EXPECT_EQ(Metric("baton_router_inflight{worker=\"d\"}"), 0);
  EXPECT_EQ(Metric("baton_prompt_tokens_total"), 20);
  EXPECT_EQ(Metric("baton_generation_tokens_total"), 1);
  EXPECT_EQ(Metric("baton_time_to_first_token_seconds_count"), 1);
}

TEST_F(RouterCoreTest, RequestsSpreadOverEqualWorkers) {
  AddWorker("d1", false);
  AddWorker("d2", false);
  Start();
  std::vector<Seen> seen(4);
  for (Seen& s : seen) Ask(s);
  EXPECT_EQ(workers_["d1"]->submits.size(), 2u);
  EXPECT_EQ(workers_["d2"]->submits.size(), 2u);
}

TEST_F(RouterCoreTest, StepTimesThatNobodyMeasuresCountAsNone) {
  FakeWorker& odd = AddWorker("d1", false);
  FakeWorker& usual = AddWorker("d2", false);
  usual.step_times.emplace().set_step_seconds(0.01);
  Start();
  std::deque<Seen> seen;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double seconds : {nan, -1.0, 1e300, infinity}) {
    odd.step_times.emplace().set_step_seconds(seconds);
    odd.Load(odd.submits.size(), 0, 100);
    usual.Load(usual.submits.size(), 0, 100);
    Run();
    for (int i = 0; i < 2; ++i) Ask(seen.emplace_back());
    EXPECT_EQ(odd.submits.size(), usual.submits.size()) << seconds;
  }
}

}  // namespace
}  // namespace baton::router
