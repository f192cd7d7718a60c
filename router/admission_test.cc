// Admission through the core: one worker that serves when the test says so, on a virtual clock.
#include "router/admission.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "router/router_core_fixture.h"

namespace baton::router {
namespace {

constexpr size_t kPrompt = 20;

class AdmissionTest : public RouterCoreTest {
 protected:
  // One decode worker that takes one prompt at a time.
  void SetUp() override {
    options_.prompt_window = 1;
    d_ = &AddWorker("d", false);
  }

  struct Asked {
    std::string tenant = "";
    int priority = 0;
    size_t prompt_tokens = kPrompt;
    std::optional<Duration> timeout = std::nullopt;
    uint32_t n = 1;
  };
  Seen& Ask(const Asked& asked) {
    RequestSpec spec;
    spec.prompt.assign(asked.prompt_tokens, 5);
    spec.stop.max_tokens = 4;
    spec.tenant = asked.tenant;
    spec.priority = asked.priority;
    spec.n = asked.n;
    spec.arrived = node_.Now();
    if (asked.timeout.has_value()) spec.deadline = node_.Now() + *asked.timeout;
    Seen& seen = seen_.emplace_back();
    core_->Generate(std::move(spec), std::make_unique<SeenObserver>(seen));
    Run(milliseconds(1));
    return seen;
  }

  // Each choice of the worker's prompt gets its only token; the next request takes its place.
  void ServeOne(Duration after = milliseconds(100)) {
    Run(after);
    const auto& state = d_->submits.back().state();
    for (int choice = 0; choice < state.choices_size(); ++choice) {
      d_->Token(d_->last_attempt(), static_cast<uint32_t>(state.prompt_size()), 100, true,
                static_cast<uint32_t>(choice));
    }
    Run(milliseconds(1));
  }

  static Duration RetryDelay(const absl::Status& status) {
    google::rpc::RetryInfo info;
    const auto payload = status.GetPayload("type.googleapis.com/google.rpc.RetryInfo");
    if (!payload.has_value() || !info.ParseFromString(std::string(*payload))) return Duration{-1};
    return seconds(info.retry_delay().seconds()) +
           std::chrono::nanoseconds(info.retry_delay().nanos());
  }

  FakeWorker* d_ = nullptr;
  std::deque<Seen> seen_;
};

TEST_F(AdmissionTest, PromptTokensThatWaitAreBounded) {
  options_.max_queue_tokens = 50;
  Start();
  Ask({});
  Ask({});
  Ask({});
  const Seen& refused = Ask({});
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused.status), "QUEUE_FULL");
  EXPECT_NE(refused.status.message().find("40 prompt tokens wait, with this prompt 20 more"),
            absl::string_view::npos)
      << refused.status;
  EXPECT_NE(refused.status.message().find("at most 50"), absl::string_view::npos);
  EXPECT_EQ(Metric("baton_router_queue_tokens"), 40);
  EXPECT_EQ(Metric("baton_requests_waiting"), 2);
  EXPECT_EQ(Metric("baton_router_refusals_total{reason=\"QUEUE_FULL\"}"), 1);
  EXPECT_EQ(Ask({.prompt_tokens = 10}).ends, 0);
  while (core_->live_requests() > 0) ServeOne();
  EXPECT_EQ(Metric("baton_router_queue_tokens"), 0);
}

TEST_F(AdmissionTest, APromptLargerThanTheWholeQueueIsTakenWhenNothingElseWaits) {
  options_.max_queue_tokens = 50;
  Start();
  Ask({});
  EXPECT_EQ(Ask({.prompt_tokens = 60}).ends, 0);
  EXPECT_EQ(core_->waiting_requests(), 1u);
  EXPECT_EQ(ReasonOf(Ask({.prompt_tokens = 1}).status), "QUEUE_FULL");
}

TEST_F(AdmissionTest, ARefusalSaysHowLongTheQueueWillTakeToDrain) {
  options_.max_queue = 20;
  Start();
  for (int i = 0; i < 21; ++i) Ask({});
  EXPECT_EQ(RetryDelay(Ask({}).status), options_.retry_max);  // nothing is measured yet
  for (int i = 0; i < 40; ++i) {
    ServeOne(milliseconds(99));
    Ask({});
  }
  // 200 tokens per second; 400 tokens wait.
  const Duration delay = RetryDelay(Ask({}).status);
  EXPECT_GT(delay, milliseconds(1900));
  EXPECT_LT(delay, milliseconds(2300));
}

TEST_F(AdmissionTest, ARefusalIsToldInTheSameTurn) {
  options_.max_queue = 1;
  Start();
  Ask({});
  Ask({});
  EXPECT_EQ(Ask({}).ends, 1);  // Ask runs for a millisecond
}

TEST_F(AdmissionTest, ADeadlineThatThePredictionBreaksIsRefusedWithBothTimes) {
  Start();
  d_->Load(0, 0, 100, 100);
  Run();
  EXPECT_EQ(Ask({.timeout = milliseconds(50)}).ends, 0);  // nothing is ahead: it is tried
  for (int i = 0; i < 4; ++i) Ask({});
  // 100 tokens ahead and 20 of its own, at 100 per second.
  const Seen& refused = Ask({.timeout = milliseconds(1000)});
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused.status), "PREDICTED_TOO_LATE");
  EXPECT_NE(refused.status.message().find("predicted after 1.20 s"), absl::string_view::npos)
      << refused.status;
  EXPECT_NE(refused.status.message().find("leaves 1.00 s"), absl::string_view::npos);
  EXPECT_NEAR(ToSeconds(RetryDelay(refused.status)), 0.2, 0.01);
  EXPECT_EQ(Metric("baton_router_refusals_total{reason=\"PREDICTED_TOO_LATE\"}"), 1);
  EXPECT_EQ(Ask({.timeout = milliseconds(1500)}).ends, 0);
  EXPECT_EQ(Ask({}).ends, 0);
}

// The queue is everybody's work, a prompt one worker's.
TEST_F(AdmissionTest, APromptIsNotPredictedToRunOnAllWorkersAtOnce) {
  FakeWorker& other = AddWorker("d2", false);
  Start();
  d_->Load(0, 0, 100, 100);
  other.Load(0, 0, 100, 50);
  Run();
  for (int i = 0; i < 3; ++i) Ask({});
  // 60 tokens ahead at 150 per second, 200 of its own at 100.
  EXPECT_EQ(ReasonOf(Ask({.prompt_tokens = 200, .timeout = milliseconds(2300)}).status),
            "PREDICTED_TOO_LATE");
  EXPECT_EQ(Ask({.prompt_tokens = 200, .timeout = milliseconds(2500)}).ends, 0);
}

TEST_F(AdmissionTest, ALongPromptIsPredictedWithWhatItsTokensAttendTo) {
  Start();
  d_->step_times.emplace().set_prompt_key_seconds(1e-4);
  d_->Load(0, 0, 100, 100);
  Run();
  for (int i = 0; i < 2; ++i) Ask({});
  // 0.4 s ahead; 2 s of its own, and 200 x 200 / 2 keys.
  EXPECT_EQ(ReasonOf(Ask({.prompt_tokens = 200, .timeout = milliseconds(4300)}).status),
            "PREDICTED_TOO_LATE");
  EXPECT_EQ(Ask({.prompt_tokens = 200, .timeout = milliseconds(4500)}).ends, 0);
}

TEST_F(AdmissionTest, TheTargetRefusesLikeADeadline) {
  options_.ttft_target = milliseconds(500);
  Start();
  d_->Load(0, 0, 100, 100);
  Run();
  Ask({});
  EXPECT_EQ(Ask({}).ends, 0);
  EXPECT_EQ(ReasonOf(Ask({}).status), "PREDICTED_TOO_LATE");
}

TEST_F(AdmissionTest, ARequestThatOvertakesIsPredictedAtItsPlace) {
  Start();
  d_->Load(0, 0, 100, 100);
  Run();
  for (int i = 0; i < 10; ++i) Ask({});
  EXPECT_EQ(ReasonOf(Ask({.timeout = seconds(1)}).status), "PREDICTED_TOO_LATE");
  EXPECT_EQ(Ask({.priority = 1, .timeout = seconds(1)}).ends, 0);
  EXPECT_EQ(Ask({.tenant = "other", .timeout = seconds(1)}).ends, 0);
}

TEST_F(AdmissionTest, APromptThatFitsNoPoolIsNamedAsSuch) {
  FakeWorker::Options small;
  small.name = "small";
  small.pool_blocks = 4;
  options_.workers.clear();
  AddWorker(small);
  Start();
  const Seen& refused = Ask({.prompt_tokens = 100});
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status.message().find("generation.prompt: "), absl::string_view::npos);
  EXPECT_NE(refused.status.message().find("need 7 KV blocks; the largest worker has 4"),
            absl::string_view::npos)
      << refused.status;
  EXPECT_EQ(Metric("baton_router_refusals_total{reason=\"NEVER_FITS\"}"), 1);
}

// What another router's requests do to this one's: the workers have no room for minutes.
TEST_F(AdmissionTest, AFullClusterIsWaitedOut) {
  FakeWorker& p = AddWorker("p", true);
  Start();
  Seen& seen = Ask({});
  for (int i = 0; i < 100; ++i) {
    if (i % 2 == 0) {
      p.NoRoom(p.last_attempt());
    } else {
      p.Started(p.last_attempt(), *d_);
      Run(milliseconds(1));
      d_->Lost(p.last_attempt(), worker::v1::CAUSE_NO_ROOM);
    }
    Run(seconds(2));
    ASSERT_EQ(seen.ends, 0) << seen.status;
  }
  EXPECT_EQ(p.submits.size(), 101u);
  p.submit_answer = absl::ResourceExhaustedError("the worker's queue is full");
  p.NoRoom(p.last_attempt());
  Run(seconds(60));
  ASSERT_EQ(seen.ends, 0) << seen.status;
  p.submit_answer = absl::OkStatus();
  Run(seconds(2));
  p.FirstToken(p.last_attempt(), kPrompt, 100, true);
  Run();
  EXPECT_TRUE(seen.status.ok()) << seen.status;
  EXPECT_EQ(seen.ends, 1);
}

TEST_F(AdmissionTest, AFullClusterIsWaitedOutUntilTheDeadline) {
  Start();
  d_->submit_answer = absl::ResourceExhaustedError("the worker's queue is full");
  Seen& seen = Ask({.timeout = seconds(30)});
  Run(milliseconds(29900));
  EXPECT_EQ(seen.ends, 0);
  Run(milliseconds(200));
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(core_->live_requests(), 0u);
}

TEST_F(AdmissionTest, ARequestThatWaitsForRoomKeepsItsPlaceInTheQueuesBounds) {
  options_.max_queue = 1;
  Start();
  d_->submit_answer = absl::ResourceExhaustedError("the worker's queue is full");
  Ask({});
  EXPECT_EQ(core_->waiting_requests(), 1u);
  EXPECT_EQ(ReasonOf(Ask({}).status), "QUEUE_FULL");
}

TEST_F(AdmissionTest, AHigherPriorityOvertakesAndSaysSoToTheWorker) {
  Start();
  Ask({});
  Ask({});
  Ask({.priority = -1});
  Ask({.priority = 2});
  Ask({.priority = 1});
  std::vector<double> credits;
  for (int i = 0; i < 5; ++i) {
    credits.push_back(static_cast<double>(d_->submits.back().state().age_ns()) / 60e9);
    ServeOne(milliseconds(1));
  }
  const std::vector<double> priorities = {4, 6, 5, 4, 3};  // above the lowest
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(credits[i], priorities[i], 0.01) << i;
  EXPECT_EQ(Metric("baton_router_queue_seconds_count{priority=\"2\"}"), 1);
  EXPECT_EQ(Metric("baton_router_queue_seconds_count{priority=\"0\"}"), 2);
}

TEST_F(AdmissionTest, ALowPriorityIsOvertakenOnlyAsLongAsItsDifferenceLasts) {
  Start();
  Ask({});
  Seen& low = Ask({.priority = -1});
  // High ones come faster than they are served; the difference is two minutes.
  Duration waited{0};
  for (; waited < seconds(300) && low.ends == 0; waited += milliseconds(1003)) {
    Ask({.priority = 1});
    ServeOne(seconds(1));
    ASSERT_TRUE(waited >= seconds(110) || low.ends == 0) << ToSeconds(waited);
    Ask({.priority = 1});
  }
  EXPECT_TRUE(low.status.ok());
  EXPECT_EQ(low.ends, 1);
  // What came before the difference had passed is twice what was served till then.
  EXPECT_LT(waited, seconds(250));
}

// Prompt tokens and tokens of each tenant that were served while everybody waited.
TEST_F(AdmissionTest, TenantsGetEqualServiceHoweverMuchEachSends) {
  options_.max_queue = 100000;
  Start();
  for (int i = 0; i < 2000; ++i) Ask({.tenant = "ten-times", .prompt_tokens = 20});
  for (int i = 0; i < 200; ++i) Ask({.tenant = "once", .prompt_tokens = 35});
  std::map<std::string, uint64_t> served;
  std::map<uint64_t, std::string> tenant_of;
  const auto waiting = [&](const std::string& tenant) {
    const size_t from = tenant == "once" ? 2000 : 0;
    const size_t to = tenant == "once" ? 2200 : 2000;
    size_t n = 0;
    for (size_t i = from; i < to; ++i) n += seen_[i].ends == 0 ? 1 : 0;
    return n;
  };
  for (int i = 0; i < 300 && waiting("once") > 1; ++i) {
    const auto prompt = static_cast<uint64_t>(d_->submits.back().state().prompt_size());
    served[prompt == 35 ? "once" : "ten-times"] += prompt + options_.output_token_weight;
    ServeOne(milliseconds(1));
  }
  ASSERT_GT(served["once"], 3000u);
  EXPECT_NEAR(static_cast<double>(served["once"]) / static_cast<double>(served["ten-times"]), 1,
              0.1);
}

// Output tokens are charged as they arrive: a tenant with long answers gets fewer of them.
TEST_F(AdmissionTest, OutputTokensCountAsServiceWhenTheyArrive) {
  Start();
  for (int i = 0; i < 100; ++i) Ask({.tenant = "long"});
  for (int i = 0; i < 100; ++i) Ask({.tenant = "short", .prompt_tokens = 21});
  std::map<size_t, int> requests;
  for (int i = 0; i < 60; ++i) {
    const auto prompt = static_cast<uint32_t>(d_->submits.back().state().prompt_size());
    ++requests[prompt];
    const AttemptId id = d_->last_attempt();
    if (prompt == 20) {
      for (uint32_t k = 0; k < 3; ++k) d_->Token(id, prompt + k, 100 + static_cast<TokenId>(k));
    }
    d_->Token(id, prompt + (prompt == 20 ? 3 : 0), 103, true);
    Run(milliseconds(1));
  }
  // 20 + 4 x 2 against 21 + 1 x 2.
  EXPECT_NEAR(static_cast<double>(requests[21]) / requests[20], 28.0 / 23.0, 0.1);
}

// One tenant sends ten times as much as the other, everything with the highest priority; of the
// other, one request has the lowest and a later one the highest.
TEST_F(AdmissionTest, TenantsStayEvenWhileAHighPriorityOvertakesAndTheLowestIsServed) {
  options_.max_queue = 100000;
  options_.age_credit = seconds(2);
  Start();
  constexpr size_t kOnce = 35, kHigh = 36, kLowest = 37;
  std::map<bool, uint64_t> served;  // of "once"?
  std::optional<int> high_after, lowest_at;
  for (int turn = 0; turn < 250; ++turn) {  // one is served in 0.1 s
    for (int i = 0; i < 10; ++i) Ask({.tenant = "ten-times", .priority = 4});
    if (turn == 1) Ask({.tenant = "once", .priority = -4, .prompt_tokens = kLowest});
    Ask({.tenant = "once", .prompt_tokens = kOnce});
    if (turn == 50) Ask({.tenant = "once", .priority = 4, .prompt_tokens = kHigh});
    const auto prompt = static_cast<size_t>(d_->submits.back().state().prompt_size());
    served[prompt != kPrompt] += prompt + options_.output_token_weight;
    if (prompt == kHigh) high_after = turn - 50;
    if (prompt == kLowest) lowest_at = turn;
    ServeOne(milliseconds(88));
  }
  EXPECT_NEAR(static_cast<double>(served[true]) / static_cast<double>(served[false]), 1, 0.1);
  // About 25 of "once" waited: what the worker has already and its tenant's next turn.
  EXPECT_LE(high_after.value_or(1000), 4);
  // The 80 of "once" that came within 8 s after it, and as much service of the other.
  EXPECT_GT(lowest_at.value_or(0), 100);
  EXPECT_LT(lowest_at.value_or(1000), 240);
}

TEST_F(AdmissionTest, EveryChoiceCountsAsServiceAndThePromptOnce) {
  Start();
  for (int i = 0; i < 100; ++i) Ask({.tenant = "four", .n = 4});
  for (int i = 0; i < 100; ++i) Ask({.tenant = "one", .prompt_tokens = 21});
  std::map<int, int> requests;
  for (int i = 0; i < 60; ++i) {
    ++requests[d_->submits.back().state().prompt_size()];
    ServeOne(milliseconds(1));
  }
  // 20 + 4 x 2 against 21 + 1 x 2.
  EXPECT_NEAR(static_cast<double>(requests[21]) / requests[20], 28.0 / 23.0, 0.1);
}

TEST_F(AdmissionTest, ATenantThatComesLateStartsLevelAndThenGetsItsHalf) {
  Start();
  for (int i = 0; i < 200; ++i) Ask({.tenant = "busy"});
  for (int i = 0; i < 50; ++i) ServeOne(milliseconds(1));
  const size_t before = d_->submits.size();
  for (int i = 0; i < 50; ++i) Ask({.tenant = "late", .prompt_tokens = 21});
  for (int i = 0; i < 40; ++i) ServeOne(milliseconds(1));
  int late = 0;
  for (size_t i = before; i < d_->submits.size(); ++i) {
    late += d_->submits[i].state().prompt_size() == 21 ? 1 : 0;
  }
  EXPECT_NEAR(late, 20, 2);
}

// Two minutes of five times too much, in virtual time.
TEST_F(AdmissionTest, AnOverloadedRouterServesInTimeWhatItTakesAndIsSoonAsBefore) {
  options_.ttft_target = seconds(1);
  Start();
  d_->Load(0, 0, 100, 1000);  // says five times what it can
  Run();
  const Time start = node_.Now();
  size_t refused = 0;
  for (int turn = 0; turn < 1200; ++turn) {  // one is served in 100 ms
    for (int i = 0; i < 5; ++i) {
      const Seen& seen = Ask({});
      Run(milliseconds(18));
      if (seen.ends == 0) continue;
      ++refused;
      EXPECT_EQ(ReasonOf(seen.status), "PREDICTED_TOO_LATE");
      EXPECT_GE(RetryDelay(seen.status), options_.refusal_min);
    }
    ServeOne(milliseconds(4));
  }
  EXPECT_GE(node_.Now() - start, seconds(119));
  for (int i = 0; i < 100 && core_->live_requests() > 0; ++i) ServeOne(milliseconds(100));
  std::vector<Duration> first;
  for (const Seen& seen : seen_) {
    if (seen.status.ok()) first.push_back(seen.summary.timings.time_to_first_token);
  }
  std::sort(first.begin(), first.end());
  ASSERT_GT(first.size(), 1000u);
  EXPECT_EQ(first.size() + refused, seen_.size());
  EXPECT_LE(first[first.size() * 99 / 100], 2 * options_.ttft_target);
  const Seen& after = Ask({});
  ServeOne();
  EXPECT_LT(after.summary.timings.time_to_first_token, milliseconds(150));
}

TEST_F(AdmissionTest, ACheckForRoomCountsItsRefusals) {
  options_.max_queue = 1;
  Start();
  EXPECT_TRUE(core_->CheckRoom(20).ok());
  Ask({});
  Ask({});
  EXPECT_EQ(ReasonOf(core_->CheckRoom(20)), "QUEUE_FULL");
  EXPECT_EQ(Metric("baton_router_refusals_total{reason=\"QUEUE_FULL\"}"), 1);
}

}  // namespace
}  // namespace baton::router
