// What a handover gives, refuses and releases, between cores on virtual time.
#include "kvtransfer/handover_fixture.h"

namespace baton::kvtransfer {
namespace {

TEST_F(HandoverTest, BlocksAndStateCrossAndBothSidesForget) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 70);
  Run();
  ASSERT_EQ(source.granted.count(a), 1u);
  EXPECT_EQ(sink.reserved[a].prompt, prompts[a]);
  EXPECT_EQ(sink.reserved[a].age, milliseconds(5));
  ShipAll(a);
  Run();
  EXPECT_EQ(sink.first_piece[a], 1);
  EXPECT_EQ(sink.committed.count(a), 0u);
  Commit(a);
  Run();
  ASSERT_EQ(source.ended.count(a), 1u);
  EXPECT_EQ(source.ended[a].outcome, Outcome::kCommitted);
  EXPECT_EQ(sink.committed[a], "state");
  ExpectBlocksArrived(a);
  EXPECT_EQ(source.metrics.handoff_seconds.Count(), 1u);
  EXPECT_EQ(source.metrics.handoff_bytes.Value(), static_cast<double>(source.ended[a].bytes));
  EXPECT_EQ(sink.table.landed_bytes(), source.ended[a].bytes);
  EXPECT_TRUE(sink.quiesced.empty() && sink.dropped.empty());
  ExpectIdle();
}

TEST_F(HandoverTest, ManyTransfersInterleaveOnOneSession) {
  source.on_granted = [this](const AttemptId& attempt) {
    ShipAll(attempt);
    Commit(attempt);
  };
  for (uint64_t i = 1; i <= 9; ++i) Reserve(TestAttempt(i), i == 3 ? 1 : 16 * (i % 4) + 15 + i % 3);
  Run();
  EXPECT_EQ(dials, 1);
  for (uint64_t i = 1; i <= 9; ++i) {
    EXPECT_EQ(source.ended[TestAttempt(i)].outcome, Outcome::kCommitted) << i;
  }
  ExpectBlocksArrived(TestAttempt(9));
  ExpectIdle();
}

TEST_F(HandoverTest, BlocksTheSinkHasAreNotSentAndAFullHitStillCommits) {
  sink.first_needed = 2;
  const AttemptId partial = TestAttempt(1);
  const AttemptId full = TestAttempt(2);
  Reserve(partial, 50);
  Reserve(full, 32);
  Run();
  EXPECT_EQ(source.granted[partial], (std::vector<uint32_t>{2, 2}));
  for (const AttemptId& attempt : {partial, full}) {
    ShipAll(attempt);
    Commit(attempt);
  }
  Run();
  EXPECT_EQ(source.ended[partial].outcome, Outcome::kCommitted);
  EXPECT_EQ(source.ended[full].outcome, Outcome::kCommitted);
  EXPECT_EQ(source.ended[full].bytes, 0u);
  ExpectBlocksArrived(partial);
  ExpectIdle();
}

TEST_F(HandoverTest, AWaitingReservationIsGrantedLaterOrReleased) {
  sink.wait = true;
  const AttemptId a = TestAttempt(1);
  const AttemptId b = TestAttempt(2);
  Reserve(a, 20);
  Reserve(b, 20);
  Run();
  EXPECT_EQ(source.waiting[a], 1);
  EXPECT_EQ(source.granted.count(a), 0u);
  source.source->Release(b);
  sink.GrantBlocks(a);
  Run();
  EXPECT_EQ(source.granted.count(a), 1u);
  EXPECT_EQ(source.ended[b].outcome, Outcome::kReleased);
  EXPECT_EQ(sink.dropped[b], wire::CAUSE_RELEASED);
  EXPECT_TRUE(sink.tombstones.Contains(b));
  source.source->Release(a);
  Run();
  EXPECT_EQ(sink.quiesced[a], 1);
  ExpectIdle();
}

TEST_F(HandoverTest, ARefusalNamesItsCauseAndLeavesNothing) {
  sink.refuse = wire::CAUSE_NO_SESSION;
  Reserve(TestAttempt(1), 20);
  Run();
  EXPECT_EQ(source.ended[TestAttempt(1)].outcome, Outcome::kNotGranted);
  EXPECT_EQ(source.ended[TestAttempt(1)].cause, wire::CAUSE_NO_SESSION);
  ExpectIdle();
}

TEST_F(HandoverTest, AReservationOutOfRangeIsRefusedAsMalformed) {
  ReserveRequest request;
  request.prompt = {1000};  // the vocabulary ends at 999
  request.max_tokens = 1;
  source.source->Reserve(TestAttempt(1), {"sink", kSinkEpoch}, request);
  request.prompt = Prompt(512);  // the context
  source.source->Reserve(TestAttempt(2), {"sink", kSinkEpoch}, request);
  request.prompt = Prompt(5);
  request.max_tokens = 0;
  source.source->Reserve(TestAttempt(3), {"sink", kSinkEpoch}, request);
  Run();
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(source.ended[TestAttempt(i)].cause, wire::CAUSE_MALFORMED) << i;
  }
  EXPECT_TRUE(sink.reserved.empty());
  ExpectIdle();
}

TEST_F(HandoverTest, AnotherProcessAtTheSinksAddressIsStale) {
  Reserve(TestAttempt(1), 20, Epoch{9, 9});
  Run();
  EXPECT_EQ(source.ended[TestAttempt(1)].outcome, Outcome::kPeerLost);
  EXPECT_EQ(source.ended[TestAttempt(1)].cause, wire::CAUSE_STALE_EPOCH);
  EXPECT_EQ(sink.sink->sessions(), 0u);
  ExpectIdle();
}

TEST_F(HandoverTest, ACancelAtTheSinkRevokesAndItsBlocksAreQuietBeforeTheyAreFreed) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 70);
  Run();
  ShipAll(a);
  sink.sink->Drop(a, wire::CAUSE_CANCELLED);
  Run();
  EXPECT_EQ(source.ended[a].outcome, Outcome::kRevoked);
  EXPECT_EQ(source.ended[a].cause, wire::CAUSE_CANCELLED);
  EXPECT_EQ(sink.quiesced[a], 1);
  EXPECT_EQ(sink.dropped.count(a), 0u);
  EXPECT_EQ(Failures(sink.metrics.failures, "cancelled"), 1);
  EXPECT_EQ(Failures(source.metrics.failures, "cancelled"), 1);
  // The id stays refused, and the session goes on.
  Reserve(TestAttempt(2), 20);
  source.ended.clear();
  Reserve(a, 70);
  Run();
  EXPECT_EQ(source.ended[a].cause, wire::CAUSE_TOMBSTONE);
  EXPECT_EQ(source.granted.count(TestAttempt(2)), 1u);
}

TEST_F(HandoverTest, ACancelForAnAttemptNeverSeenRefusesItsReserve) {
  sink.sink->Drop(TestAttempt(1), wire::CAUSE_CANCELLED);
  Reserve(TestAttempt(1), 20);
  Run();
  EXPECT_EQ(source.ended[TestAttempt(1)].outcome, Outcome::kNotGranted);
  EXPECT_EQ(source.ended[TestAttempt(1)].cause, wire::CAUSE_TOMBSTONE);
  Run(seconds(21));
  EXPECT_EQ(sink.tombstones.size(), 0u);
  ExpectIdle();
}

TEST_F(HandoverTest, AReleaseBeforeCommitFreesBothSides) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 70);
  Run();
  ShipAll(a);
  source.source->Release(a);
  Run();
  EXPECT_EQ(source.ended[a].outcome, Outcome::kReleased);
  EXPECT_EQ(sink.dropped[a], wire::CAUSE_RELEASED);
  EXPECT_EQ(sink.quiesced[a], 1);
  ExpectIdle();
}

TEST_F(HandoverTest, AReleaseAfterCommitIsIgnoredAndMakesNoTombstone) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 20);
  Run();
  ShipAll(a);
  Commit(a);
  while (sink.committed.empty()) ASSERT_TRUE(world.RunOne());
  source.source->Release(a);  // the reply is still on its way
  Run();
  EXPECT_EQ(source.ended[a].outcome, Outcome::kReleased);
  EXPECT_TRUE(sink.dropped.empty());
  EXPECT_FALSE(sink.tombstones.Contains(a));
  ExpectIdle();
}

TEST_F(HandoverTest, ADamagedPieceRefusesOnlyItsTransfer) {
  bool damaged = false;
  meddle = [&](const InProcessNetwork::Wire& on, std::string& bytes) {
    if (on.to == "sink" && bytes.size() > 500 && !damaged) {
      damaged = true;
      bytes[300] = static_cast<char>(bytes[300] ^ 1);
    }
    return true;
  };
  source.on_granted = [this](const AttemptId& attempt) {
    ShipAll(attempt);
    Commit(attempt);
  };
  Reserve(TestAttempt(1), 70);
  Reserve(TestAttempt(2), 70);
  Run();
  EXPECT_TRUE(damaged);
  EXPECT_EQ(source.ended[TestAttempt(1)].cause, wire::CAUSE_CHECKSUM_MISMATCH);
  EXPECT_EQ(sink.dropped[TestAttempt(1)], wire::CAUSE_CHECKSUM_MISMATCH);
  EXPECT_EQ(sink.quiesced[TestAttempt(1)], 1);
  EXPECT_EQ(source.ended[TestAttempt(2)].outcome, Outcome::kCommitted);
  EXPECT_EQ(Failures(sink.metrics.failures, "checksum_mismatch"), 1);
  ExpectIdle();
}

TEST_F(HandoverTest, ACommitWithoutAllPiecesIsRefused) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 40);
  Run();
  source.source->Ship(a, {0, 0, {1, 2, 3}});
  Commit(a);
  Run();
  EXPECT_EQ(source.ended[a].outcome, Outcome::kRefused);
  EXPECT_EQ(source.ended[a].cause, wire::CAUSE_MISSING_PIECE);
  EXPECT_EQ(sink.dropped[a], wire::CAUSE_MISSING_PIECE);
  EXPECT_EQ(sink.quiesced[a], 1);
  EXPECT_TRUE(sink.committed.empty());
  ExpectIdle();
}

TEST_F(HandoverTest, ACommitOfAnotherPromptIsRefused) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 40);
  Run();
  ShipAll(a);
  source.source->Commit(a, {TokenChainHash(Prompt(39)), "state"});
  Run();
  EXPECT_EQ(source.ended[a].outcome, Outcome::kRefused);
  EXPECT_TRUE(sink.committed.empty());
  ExpectIdle();
}

TEST_F(HandoverTest, AHostThatRefusesTheStateGetsItsBlocksBackQuiet) {
  sink.commit_answer = wire::CAUSE_INTERNAL;
  const AttemptId a = TestAttempt(1);
  Reserve(a, 40);
  Run();
  ShipAll(a);
  Commit(a);
  Run();
  EXPECT_EQ(source.ended[a].outcome, Outcome::kRefused);
  EXPECT_EQ(source.ended[a].cause, wire::CAUSE_INTERNAL);
  EXPECT_EQ(sink.quiesced[a], 1);
  ExpectIdle();
}

TEST_F(HandoverTest, ASourceThatDiesMidTransferFreesTheSinkAfterItsLease) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 70);
  Run();
  ShipAll(a);
  source.executor.Kill();
  Run(seconds(9));
  EXPECT_TRUE(sink.dropped.empty());
  Run(seconds(2));
  EXPECT_EQ(sink.dropped[a], wire::CAUSE_LEASE_EXPIRED);
  EXPECT_EQ(sink.quiesced[a], 1);
  EXPECT_EQ(sink.metrics.leases_expired.Value(), 1);
  EXPECT_EQ(sink.sink->sessions(), 0u);
  EXPECT_EQ(sink.table.live(), 0u);
}

TEST_F(HandoverTest, ASilentSinkEndsTheSourcesAttempts) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 70);
  Run();
  ShipAll(a);
  Commit(a);
  sink.executor.Kill();
  Run(seconds(11));
  EXPECT_EQ(source.ended[a].outcome, Outcome::kPeerLost);
  EXPECT_EQ(source.ended[a].cause, wire::CAUSE_LEASE_EXPIRED);
  EXPECT_EQ(source.source->live(), 0u);
}

// As workers of one machine that is paused do.
TEST_F(HandoverTest, ASourceAndASinkThatStoodStillHaveNotLostEachOther) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 70);
  Run();
  ShipAll(a);
  const Time until = world.now() + seconds(60);
  source.executor.StandStill(until, /*unread=*/milliseconds(300));
  sink.executor.StandStill(until, /*unread=*/milliseconds(500));
  Commit(a);  // its answer is read late
  Run(seconds(70));
  EXPECT_EQ(source.ended[a].outcome, Outcome::kCommitted);
  EXPECT_TRUE(sink.dropped.empty());
  EXPECT_EQ(sink.metrics.leases_expired.Value() + source.metrics.leases_expired.Value(), 0);
  ExpectIdle();
}

TEST_F(HandoverTest, ALongIdleSessionStaysOpen) {
  Reserve(TestAttempt(1), 20);
  Run(seconds(100));
  EXPECT_EQ(sink.sink->sessions(), 1u);
  EXPECT_EQ(source.source->state(TestAttempt(1)), SourceState::kGranted);
}

TEST_F(HandoverTest, ALostDataConnectionEndsItsTransfersAndTheNextGrantConnectsAgain) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 70);
  Run();
  meddle = [](const InProcessNetwork::Wire&, std::string& bytes) {
    if (bytes.size() > 500) bytes[0] = 'x';  // no frame at all
    return true;
  };
  ShipAll(a);
  Run();
  EXPECT_EQ(
      source.ended[a].outcome == Outcome::kPeerLost || source.ended[a].outcome == Outcome::kRevoked,
      true);
  EXPECT_EQ(sink.dropped[a], wire::CAUSE_MALFORMED);
  meddle = nullptr;
  const AttemptId b = TestAttempt(2);
  Reserve(b, 70);
  Run();
  ShipAll(b);
  Commit(b);
  Run();
  EXPECT_EQ(source.ended[b].outcome, Outcome::kCommitted);
  EXPECT_EQ(dials, 1);
  ExpectIdle();
}

TEST_F(HandoverTest, DestroyingTheSinkEndsTheSourcesAttempts) {
  Reserve(TestAttempt(1), 20);
  Run();
  sink.listener.reset();
  sink.sink.reset();
  Run();
  EXPECT_EQ(source.ended[TestAttempt(1)].outcome, Outcome::kPeerLost);
}

}  // namespace
}  // namespace baton::kvtransfer
