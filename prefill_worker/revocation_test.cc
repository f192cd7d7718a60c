// A reservation that the sink takes back at any moment of a request's way from the source: nothing
// stays, nobody hears two ends, and the next attempt finds the source's prompt and gives the same.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_fixture.h"
#include "gtest/gtest.h"
#include "kv/block_pool.h"
#include "prefill_worker/handover_fixture.h"

namespace baton::worker {
namespace {

class RevocationTest : public HandoverTest {
 protected:
  DecoderState Cached(uint32_t attempt, uint32_t n = 1) {
    DecoderState state = State(1, 150, 20, n);
    state.attempt = RigAttempt(1, attempt);
    state.cache_namespace = "space";
    return state;
  }
  bool Revoke(uint32_t attempt = 1) { return decode_->decode->Revoke(RigAttempt(1, attempt)); }
  double Revocations() { return MetricOf(*decode_, "baton_reservations_revoked_total"); }
  static double MetricOf(RigWorker& worker, const std::string& name) {
    const std::string text = worker.metrics.Scrape();
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }
  uint32_t CachedPromptOf(const AttemptId& attempt) {
    for (const v1::WorkerEvent& event : to_prefill_->EventsOf(attempt)) {
      if (event.has_cached_prompt()) return event.cached_prompt().tokens();
    }
    return 0;
  }
  // What the router was told of an end: Lost by the sink, Failed by the source.
  std::vector<v1::Cause> LostOf(const AttemptId& attempt) {
    std::vector<v1::Cause> causes;
    for (const v1::WorkerEvent& event : to_decode_->EventsOf(attempt)) {
      if (event.has_lost()) causes.push_back(event.lost().cause());
    }
    return causes;
  }
  void ExpectRightTokens(const DecoderState& state) {
    const auto n = static_cast<uint32_t>(state.choices.size());
    EXPECT_TRUE(to_decode_->Finished(state.attempt, n));
    for (uint32_t choice = 0; choice < n; ++choice) {
      EXPECT_EQ(to_decode_->TokensOf(state.attempt, choice), Expected(state, choice));
    }
  }
  // What was held back.
  void Deliver() {
    hold_data_ = false;
    for (auto& deliver : std::exchange(held_, {})) decode_->executor.Post(std::move(deliver));
  }
  // The first attempt is revoked when so much time has passed, if it can be; returns whether.
  bool RevokeAfter(Duration after, uint32_t n) {
    RigWorker::Options prefill = PrefillOptions();
    prefill.step_tokens = 32;
    Restart(prefill, DecodeOptions());
    const DecoderState first = Cached(1, n);
    EXPECT_TRUE(Submit(first).ok());
    world_.RunFor(after);
    const bool revoked = Revoke();
    EXPECT_EQ(Revocations(), revoked ? 1 : 0);
    world_.RunFor(seconds(2));
    ExpectIdle();
    if (!revoked) {
      ExpectRightTokens(first);
      return false;
    }
    EXPECT_EQ(LostOf(first.attempt), std::vector<v1::Cause>{v1::CAUSE_PREEMPTED});
    EXPECT_TRUE(to_decode_->TokensOf(first.attempt).empty());
    return true;
  }
};

TEST_F(RevocationTest, AtAnyMomentItFreesBothSidesOrComesTooLateAndTheNextAttemptIsRight) {
  for (const uint32_t n : {1u, 3u}) {
    int revoked = 0;
    for (int after_us = 50; after_us < 6000; after_us += 50) {
      SCOPED_TRACE(std::to_string(after_us) + " us, n " + std::to_string(n));
      if (!RevokeAfter(microseconds(after_us), n)) continue;
      ++revoked;
      const DecoderState again = Cached(2, n);
      ASSERT_TRUE(Submit(again).ok());
      world_.RunFor(seconds(2));
      ExpectRightTokens(again);
      ExpectIdle();
    }
    EXPECT_GT(revoked, 10);
  }
}

TEST_F(RevocationTest, TheSourceKeepsWhatItComputedAndTheSinkNothing) {
  uint64_t landed = 0;
  uint32_t kept = 0;
  uint32_t found = 0;
  for (int after_us = 50; after_us < 6000; after_us += 50) {
    if (!RevokeAfter(microseconds(after_us), 1)) continue;
    EXPECT_EQ(decode_->core->cache()->size(), 0u);
    landed = std::max(landed, decode_->table->landed_bytes());
    kept = std::max(kept, prefill_->core->cache()->size());
    const DecoderState again = Cached(2);
    ASSERT_TRUE(Submit(again).ok());
    world_.RunFor(seconds(2));
    EXPECT_EQ(to_prefill_->EventsOf(again.attempt).back().handed_off().tokens(), 150u);
    found = std::max(found, CachedPromptOf(again.attempt));
  }
  EXPECT_GT(landed, 0u);
  EXPECT_EQ(kept, 8u);  // of the steps before the last, which ends with the commit
  EXPECT_EQ(found, 128u);
}

// A source that has not sent all of its prompt's first tokens says so itself: the router may not
// know the sink yet.
TEST_F(RevocationTest, ASourceThatStillComputesTellsTheRouterToo) {
  RigWorker::Options prefill = PrefillOptions();
  prefill.step_tokens = 16;
  prefill.model.step_cost = milliseconds(5);
  Start(prefill);
  attach_ = false;
  ASSERT_TRUE(Submit(Cached(1)).ok());
  world_.RunFor(milliseconds(12));
  ASSERT_EQ(prefill_->prefill->state(RigAttempt(1)), PrefillState::kRunning);
  ASSERT_TRUE(Revoke());
  world_.RunFor(milliseconds(1));
  const v1::Failed failed = to_prefill_->EventsOf(RigAttempt(1)).back().failed();
  EXPECT_EQ(failed.cause(), v1::CAUSE_PREEMPTED);
  EXPECT_EQ(failed.code(), static_cast<int>(absl::StatusCode::kUnavailable));
  world_.RunFor(milliseconds(50));
  ExpectIdle();
  EXPECT_GE(prefill_->core->cache()->size(), 2u);  // what it had computed
}

TEST_F(RevocationTest, RacesWithCancelDeadlineAndLossesLeaveNothing) {
  const std::vector<std::function<void()>> others = {
      [this] {
        to_prefill_->Cancel(RigAttempt(1));
        to_decode_->Cancel(RigAttempt(1));
      },
      [this] { to_decode_->Crash(); },
      [this] { to_prefill_->Crash(); },
      [this] { prefill_.reset(); },
      [this] { Revoke(); },
  };
  for (size_t other = 0; other < others.size(); ++other) {
    for (const bool revoke_first : {true, false}) {
      for (int after_us = 50; after_us < 6000; after_us += 350) {
        SCOPED_TRACE(std::to_string(other) + " " + std::to_string(after_us) + " us");
        Restart(PrefillOptions(), DecodeOptions());
        ASSERT_TRUE(Submit(Cached(1)).ok());
        world_.RunFor(microseconds(after_us));
        if (revoke_first) Revoke();
        others[other]();
        if (!revoke_first) Revoke();
        world_.RunFor(seconds(12));
        EXPECT_TRUE(decode_->core->idle());
        EXPECT_TRUE(decode_->all_free());
        EXPECT_EQ(decode_->decode->sink().live(), 0u);
        EXPECT_EQ(decode_->table->live(), 0u);
        EXPECT_LE(LostOf(RigAttempt(1)).size(), 1u);
        EXPECT_TRUE(prefill_ == nullptr || prefill_->all_free());
      }
    }
  }
}

// Whoever runs alone at the sink and a reservation there are two requests of their ages.
TEST_F(RevocationTest, AnOlderRequestThatRunsAloneAtTheSinkTakesTheRoomOfAReservation) {
  RigWorker::Options decode = DecodeOptions();
  decode.blocks = 17;  // 5, 11, and one that who is granted leaves free
  Start(PrefillOptions(), decode);
  DecoderState older = State(99, 64, 190);  // grows from 5 blocks to 16
  older.age = seconds(60);
  older.stop.ignore_eos = true;
  ASSERT_TRUE(to_decode_->Submit(older).ok());
  world_.RunFor(milliseconds(1));
  hold_data_ = true;
  ASSERT_TRUE(Submit(Cached(1)).ok());
  EXPECT_TRUE(
      world_.RunUntilTrue([this] { return Revocations() == 1; }, world_.now() + seconds(9)));
  world_.RunFor(milliseconds(5));
  EXPECT_EQ(LostOf(RigAttempt(1)), std::vector<v1::Cause>{v1::CAUSE_PREEMPTED});
  EXPECT_FALSE(to_decode_->Finished(older.attempt));
  Deliver();
  const DecoderState again = Cached(2);
  ASSERT_TRUE(Submit(again).ok());
  world_.RunFor(seconds(2));
  ExpectRightTokens(older);
  ExpectRightTokens(again);
  ExpectIdle();
}

TEST_F(RevocationTest, AYoungerRequestWaitsForTheReservationInstead) {
  RigWorker::Options decode = DecodeOptions();
  decode.blocks = 17;  // 5, 11, and one that who is granted leaves free
  Start(PrefillOptions(), decode);
  DecoderState younger = State(99, 64, 190);
  younger.stop.ignore_eos = true;
  ASSERT_TRUE(to_decode_->Submit(younger).ok());
  world_.RunFor(milliseconds(1));
  hold_data_ = true;
  DecoderState older = Cached(1);
  older.age = seconds(60);
  ASSERT_TRUE(Submit(older).ok());
  world_.RunFor(milliseconds(500));
  EXPECT_EQ(Revocations(), 0);
  EXPECT_EQ(decode_->decode->state(RigAttempt(1)), DecodeState::kGranted);
  EXPECT_FALSE(to_decode_->Finished(younger.attempt));
  Deliver();
  world_.RunFor(seconds(2));
  ExpectRightTokens(older);
  ExpectRightTokens(younger);
  ExpectIdle();
}

// Blocks that others share do not become free: the next youngest is asked.
TEST_F(RevocationTest, AReservationThatHeldOnlySharedBlocksIsNotTheLastThatIsAsked) {
  RigWorker::Options prefill = PrefillOptions();
  prefill.step_tokens = 256;
  prefill.model.step_cost = seconds(5);  // nothing is committed meanwhile
  RigWorker::Options decode = DecodeOptions();
  decode.blocks = 16;
  Start(prefill, decode);
  DecoderState oldest = State(99, 64, 190);
  oldest.age = seconds(90);
  oldest.stop.ignore_eos = true;
  oldest.cache_namespace = "space";
  ASSERT_TRUE(to_decode_->Submit(oldest).ok());  // 5 blocks, then more
  world_.RunFor(milliseconds(2));
  DecoderState middle = State(2, 150, 10);  // 10 blocks
  middle.age = seconds(60);
  ASSERT_TRUE(Submit(middle).ok());
  DecoderState same = oldest;  // its prompt's blocks alone
  same.attempt = RigAttempt(3);
  same.age = seconds(0);
  same.stop.max_tokens = 1;
  ASSERT_TRUE(Submit(same).ok());
  world_.RunFor(milliseconds(1));
  ASSERT_EQ(decode_->decode->state(middle.attempt), DecodeState::kGranted);
  ASSERT_EQ(decode_->decode->state(same.attempt), DecodeState::kGranted);
  EXPECT_TRUE(
      world_.RunUntilTrue([this] { return Revocations() == 2; }, world_.now() + seconds(1)));
  world_.RunFor(seconds(20));
  ExpectRightTokens(oldest);
  ExpectIdle();
}

// One request after the other, until every state was seen in the gauges; they always add up.
TEST_F(RevocationTest, TheGaugesFollowBlocksThroughAllTheirStates) {
  Start();
  std::map<std::string, double> most;
  const auto look = [&] {
    decode_->core->Load();
    double sum = 0;
    for (size_t i = 0; i < kv::kNumBlockStates; ++i) {
      const std::string state(kv::BlockStateName(static_cast<kv::BlockState>(i)));
      const double blocks = MetricOf(*decode_, "baton_kv_blocks{state=\"" + state + "\"}");
      most[state] = std::max(most[state], blocks);
      sum += blocks;
    }
    EXPECT_EQ(sum, 128);  // of two groups
  };
  for (uint32_t attempt = 1; attempt <= 40; ++attempt) {
    ASSERT_TRUE(Submit(Cached(attempt)).ok());
    world_.RunFor(microseconds(150 * attempt));
    look();
    to_decode_->Cancel(RigAttempt(1, attempt));  // in the middle of a step
    to_prefill_->Cancel(RigAttempt(1, attempt));
    world_.RunFor(microseconds(1));
    look();
    world_.RunFor(seconds(1));
    look();
  }
  for (const auto& [state, blocks] : most) EXPECT_GT(blocks, 0) << state;
  EXPECT_EQ(MetricOf(*decode_, "baton_kv_self_check_violations_total"), 0);
  EXPECT_EQ(MetricOf(*prefill_, "baton_kv_self_check_violations_total"), 0);
}

TEST_F(RevocationTest, ADeadlineAtTheMomentOfTheRevocationIsOneEnd) {
  for (int after_us = 50; after_us < 3000; after_us += 50) {
    Restart(PrefillOptions(), DecodeOptions());
    DecoderState state = Cached(1);
    state.remaining = microseconds(after_us);
    ASSERT_TRUE(Submit(state).ok());
    world_.RunFor(microseconds(after_us));
    Revoke();
    world_.RunFor(seconds(2));
    ExpectIdle();
  }
}

}  // namespace
}  // namespace baton::worker
