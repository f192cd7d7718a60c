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
  // The next request tries the source again.
  Seen next;
  Ask(next);
  EXPECT_EQ(p_->submits.size(), 2u);
}

TEST_F(SplitTest, ErrorsNameTheStageAndNoWorkerOrAddress) {
  Seen refused;
  d_->submit_answer = p_->submit_answer = absl::UnavailableError("ipv4:10.0.0.7:7000: refused");
  Ask(refused);
  Run(seconds(60));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(refused.status.message(), "prefill: no worker took the request");
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
  }
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
