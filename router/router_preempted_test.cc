// What becomes of requests whose reservation at a sink was taken back for an older sequence, or
// that found no room.
#include "router/router_core_fixture.h"

namespace baton::router {
namespace {

using worker::v1::CAUSE_PREEMPTED;

TEST_F(SplitTest, APreemptedRequestIsPlacedAgainInTheSameMomentWithItsAge) {
  Seen seen;
  RunToFirstToken(seen);
  Run(milliseconds(500));
  d_->Lost(p_->last_attempt(), CAUSE_PREEMPTED);
  Run(Duration(0));
  ASSERT_EQ(p_->submits.size(), 2u);
  const auto age = [this](size_t i) { return p_->submits[i].state().age_ns(); };
  EXPECT_EQ(age(1) - age(0), static_cast<uint64_t>(Duration(milliseconds(530)).count()));
  // What the client saw is repeated, checked and not shown again.
  RunAttemptToFirstToken();
  d_->Token(p_->last_attempt(), 20, 100);
  d_->Token(p_->last_attempt(), 21, 101, true);
  p_->HandedOff(p_->last_attempt(), milliseconds(1), 1);
  Run();
  EXPECT_TRUE(seen.status.ok()) << seen.status;
  EXPECT_EQ(seen.tokens, std::vector<TokenId>({100, 101}));
}

TEST_F(SplitTest, ItGoesBeforeWhatCameLaterAndWaitsForAWorker) {
  core_.reset();
  options_.prompt_window = 1;
  Start();
  Seen seen[3];
  Ask(seen[0], 20);
  for (int i = 1; i < 3; ++i) Ask(seen[i], 20 + static_cast<size_t>(i));
  ASSERT_EQ(p_->submits.size(), 1u);
  p_->Started(p_->last_attempt(), *d_);
  Run();
  p_->Failed(p_->last_attempt(), absl::StatusCode::kUnavailable, CAUSE_PREEMPTED);
  Run(milliseconds(1));
  ASSERT_EQ(p_->submits.size(), 2u);
  EXPECT_EQ(p_->submits[1].state().prompt_size(), 20);
}

TEST_F(SplitTest, NoNumberOfRevocationsEndsARequestOrSlowsItDown) {
  Seen seen;
  Ask(seen);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(p_->submits.size(), static_cast<size_t>(i) + 1);
    p_->Started(p_->last_attempt(), *d_);
    Run(Duration(0));
    d_->Lost(p_->last_attempt(), CAUSE_PREEMPTED);
    p_->Failed(p_->last_attempt(), absl::StatusCode::kUnavailable, CAUSE_PREEMPTED);
    Run(Duration(0));
  }
  EXPECT_EQ(seen.ends, 0);
  RunAttemptToFirstToken();
  d_->Token(p_->last_attempt(), 21, 101, true);
  p_->HandedOff(p_->last_attempt(), milliseconds(1), 1);
  Run();
  EXPECT_TRUE(seen.status.ok()) << seen.status;
}

// The sink's word overtook the source's Started, and it says it once.
TEST_F(SplitTest, TheWordOfASinkThatIsNotKnownYetCountsWhenTheSourceNamesIt) {
  Seen seen;
  Ask(seen);
  const AttemptId id = p_->last_attempt();
  d_->Lost(id, CAUSE_PREEMPTED);
  Run();
  EXPECT_EQ(p_->submits.size(), 1u);
  p_->Started(id, *d_);
  p_->FirstToken(id, 20, 100);  // late: of an attempt that is over
  Run(Duration(0));
  EXPECT_EQ(p_->submits.size(), 2u);
  EXPECT_TRUE(seen.tokens.empty());
  EXPECT_EQ(Metric("baton_router_odd_events_total"), 0);
}

TEST_F(SplitTest, WhoStoodInAWorkersQueueInVainGoesToTheNextAtOnce) {
  Seen seen;
  Ask(seen);
  for (size_t i = 1; i <= 8; ++i) {
    ASSERT_EQ(p_->submits.size(), i);
    Run(seconds(5));  // the source's patience
    p_->NoRoom(p_->last_attempt());
    Run(Duration(0));
  }
  for (const int pause : {20, 40, 80}) {  // refused at once
    const size_t before = p_->submits.size();
    p_->NoRoom(p_->last_attempt());
    Run(milliseconds(pause) - Duration(1));
    EXPECT_EQ(p_->submits.size(), before);
    Run(Duration(1));
    EXPECT_EQ(p_->submits.size(), before + 1);
  }
  EXPECT_EQ(seen.ends, 0);
}

// It was granted and taken back before the source could use it; the source itself works.
TEST_F(SplitTest, ANoRoomOfAGrantThatWasTakenBackIsNoFaultOfTheSource) {
  Seen seen;
  Ask(seen);
  p_->NoRoom(p_->last_attempt(), CAUSE_PREEMPTED);
  Run(Duration(0));
  EXPECT_EQ(p_->submits.size(), 2u);
  EXPECT_TRUE(d_->submits.empty());
  EXPECT_EQ(Metric("baton_router_circuit_openings_total"), 0);
}

TEST_F(SplitTest, ADeadlineThatPassesBetweenTwoAttemptsIsTheEnd) {
  Seen seen;
  Ask(seen, 20, 8, milliseconds(50));
  p_->NoRoom(p_->last_attempt());
  Run();
  p_->NoRoom(p_->last_attempt());
  Run(milliseconds(50));
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(core_->live_requests(), 0u);
}

}  // namespace
}  // namespace baton::router
