// What becomes of requests whose workers cannot be reached, and what clients are told of it.
#include "router/router_core_fixture.h"

namespace baton::router {
namespace {

// The decode worker is alive, only not for this prefill worker.
TEST_F(SplitTest, ASourceThatReachesNoSinkIsPassedByAndTheDecodeWorkerServesAlone) {
  Seen seen;
  Ask(seen);
  p_->NoRoom(p_->last_attempt(), worker::v1::CAUSE_PEER_LOST);
  Run(milliseconds(100));
  EXPECT_EQ(p_->submits.size(), 1u);
  ASSERT_EQ(d_->submits.size(), 1u);
  EXPECT_EQ(d_->submits[0].sinks_size(), 0);
  const AttemptId id = d_->last_attempt();
  d_->Token(id, 20, 100);
  d_->Token(id, 21, 101, true);
  Run();
  EXPECT_TRUE(seen.status.ok()) << seen.status;
}

TEST_F(SplitTest, ASourceThatReachedNoSinkIsKeptAwayFromUntilOneRequestThereWorks) {
  Seen seen[6];
  Ask(seen[0]);
  p_->NoRoom(p_->last_attempt(), worker::v1::CAUSE_PEER_LOST);
  Run(milliseconds(50));
  EXPECT_EQ(Metric("baton_router_circuit_open{worker=\"p\"}"), 1);
  Ask(seen[1]);
  EXPECT_EQ(p_->submits.size(), 1u);
  EXPECT_EQ(d_->submits.size(), 2u);
  Run(milliseconds(500));
  Ask(seen[2]);  // the probe
  Ask(seen[3]);
  EXPECT_EQ(p_->submits.size(), 2u);
  EXPECT_EQ(d_->submits.size(), 3u);
  const AttemptId probe = p_->last_attempt();
  p_->Started(probe, *d_);
  Run();
  p_->FirstToken(probe, 20, 100);
  Run();
  Ask(seen[4]);
  EXPECT_EQ(p_->submits.size(), 2u);  // a handoff has still to work
  p_->HandedOff(probe, milliseconds(1), 1000);
  Run();
  Ask(seen[5]);
  EXPECT_EQ(p_->submits.size(), 3u);
  EXPECT_EQ(Metric("baton_router_circuit_open{worker=\"p\"}"), 0);
  EXPECT_EQ(Metric("baton_router_circuit_openings_total"), 1);
}

// The decode worker's session with us holds, so it is not the one that is gone.
TEST_F(SplitTest, AHandoffThatBreaksKeepsRequestsAwayFromItsSource) {
  Seen seen, next;
  RunToFirstToken(seen);
  p_->Failed(p_->last_attempt(), absl::StatusCode::kUnavailable, worker::v1::CAUSE_PEER_LOST);
  d_->Lost(p_->last_attempt(), worker::v1::CAUSE_PEER_LOST);
  Run();
  EXPECT_EQ(ReasonOf(seen.status), "WORKER_LOST");
  Ask(next);
  EXPECT_EQ(p_->submits.size(), 1u);
  EXPECT_EQ(d_->submits.size(), 1u);
}

TEST_F(SplitTest, AWorkerWhoseSubmitsFailIsNotAskedAgainByEachRequest) {
  p_->submit_answer = absl::UnavailableError("gone");
  Seen seen[2];
  Ask(seen[0]);
  Run(milliseconds(50));
  EXPECT_EQ(p_->submits.size(), 1u);
  Ask(seen[1]);
  EXPECT_EQ(p_->submits.size(), 1u);
  EXPECT_EQ(d_->submits.size(), 2u);
}

TEST_F(SplitTest, AFullOrBusyWorkerIsNoFailingOne) {
  Seen seen[2];
  p_->submit_answer = absl::ResourceExhaustedError("full");
  Ask(seen[0]);
  p_->submit_answer = absl::OkStatus();
  Run(milliseconds(100));
  p_->NoRoom(p_->last_attempt());
  Run(milliseconds(100));
  EXPECT_EQ(Metric("baton_router_circuit_openings_total"), 0);
}

// It may have been the reason.
TEST_F(RouterCoreTest, AWorkerThatComesBackHasTheOthersTriedAtOnce) {
  options_.circuit.pause_min = seconds(8);
  FakeWorker& p = AddWorker("p", true);
  FakeWorker& d = AddWorker("d", false);
  Start();
  Seen seen[3];
  Ask(seen[0]);
  p.NoRoom(p.last_attempt(), worker::v1::CAUSE_PEER_LOST);
  Run(milliseconds(300));
  Ask(seen[1]);
  EXPECT_EQ(p.submits.size(), 1u);
  d.Restart(Epoch{100, 77});
  Run(milliseconds(300));
  Ask(seen[2]);
  EXPECT_EQ(p.submits.size(), 2u);
}

TEST_F(RouterCoreTest, TheOnlyWorkerIsAskedThoughItFails) {
  FakeWorker& d = AddWorker("d", false);
  Start();
  d.submit_answer = absl::UnavailableError("gone");
  Seen seen[2];
  Ask(seen[0]);
  d.submit_answer = absl::OkStatus();
  Ask(seen[1]);
  EXPECT_GE(d.submits.size(), 2u);
  EXPECT_EQ(Metric("baton_router_circuit_open{worker=\"d\"}"), 0);
}

TEST_F(SplitTest, ErrorsNameTheStageAndNoWorkerOrAddress) {
  Seen refused;
  d_->submit_answer = p_->submit_answer = absl::UnavailableError("ipv4:10.0.0.7:7000: refused");
  Ask(refused);
  Run(seconds(60));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kUnavailable);
  const std::string text(refused.status.message());
  EXPECT_TRUE(text == "prefill: no worker took the request" ||
              text == "decode: no worker took the request")
      << text;
  Seen failed;
  p_->submit_answer = absl::InternalError("ipv4:10.0.0.7:7000: refused");
  Ask(failed);
  EXPECT_EQ(failed.status.message(), "prefill: the worker failed to take the request");
  p_->submit_answer = absl::OkStatus();
  Seen lost;
  RunToFirstToken(lost);
  d_->Crash();
  Run();
  EXPECT_EQ(lost.status.message(), "decode: the worker was lost");
}

// Which of the two is at fault nobody can say, and whoever speaks first is heard.
TEST_F(SplitTest, WorkersThatLostEachOtherAreToldAsTheHandoff) {
  for (const bool from_source : {true, false}) {
    Seen seen;
    Ask(seen);
    const AttemptId id = p_->last_attempt();
    p_->Started(id, *d_);
    Run();
    if (from_source) {
      p_->Failed(id, absl::StatusCode::kUnavailable, worker::v1::CAUSE_PEER_LOST);
    } else {
      d_->Lost(id, worker::v1::CAUSE_PEER_LOST);
    }
    Run();
    EXPECT_EQ(ReasonOf(seen.status), "WORKER_LOST");
    EXPECT_EQ(seen.status.message().substr(0, 9), "handoff: ");
    Run(milliseconds(100));  // until the source is tried again
  }
}

// It is stopped, or the machine is: what the workers said meanwhile is read afterwards.
TEST_F(SplitTest, ARouterThatStoodStillHasLostNoWorker) {
  Seen seen;
  RunToFirstToken(seen);
  for (const Duration stood : {seconds(5), seconds(3600)}) {
    node_.StandStill(world_.now() + stood, /*unread=*/milliseconds(300));
    Run(stood + seconds(10));
  }
  EXPECT_EQ(p_->sessions_opened, 1);
  EXPECT_EQ(d_->sessions_opened, 1);
  const AttemptId id = p_->last_attempt();
  d_->Token(id, 20, 100);
  d_->Token(id, 21, 101, true);
  Run();
  EXPECT_TRUE(seen.status.ok()) << seen.status;
}

TEST_F(SplitTest, AWorkerThatIsSilentAfterTheRouterStoodStillIsLost) {
  Seen seen;
  RunToFirstToken(seen);
  d_->answers_heartbeats = false;
  node_.StandStill(world_.now() + seconds(100), /*unread=*/milliseconds(300));
  Run(seconds(105));
  EXPECT_EQ(seen.status.message(), "decode: the worker was lost");
  EXPECT_EQ(p_->sessions_opened, 1);
}

TEST_F(RouterCoreTest, HeartbeatsComeAsOftenAsTheLeaseOfTheWorkerNeeds) {
  FakeWorker::Options options;
  options.name = "d";
  options.lease_ms = 400;
  FakeWorker& worker = AddWorker(options);
  Start();
  Run(seconds(1));
  EXPECT_GE(worker.heartbeats, 9);
}

TEST_F(RouterCoreTest, AWorkerWithAnAbsurdLeaseDoesNotKeepTheRouterBusy) {
  FakeWorker::Options options;
  options.name = "d";
  options.lease_ms = 1;
  FakeWorker& worker = AddWorker(options);
  Start();
  Run(seconds(1));
  EXPECT_GE(worker.heartbeats, 50);
  EXPECT_LE(worker.heartbeats, 101);
}

}  // namespace
}  // namespace baton::router
