// Both roles together on virtual time, for tests: a request crosses from a prefill worker to a
// decode worker.
#ifndef BATON_PREFILL_WORKER_HANDOVER_FIXTURE_H_
#define BATON_PREFILL_WORKER_HANDOVER_FIXTURE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/decoder_state.h"
#include "common/sim_executor.h"
#include "engine/engine_fixture.h"
#include "engine/fake_model_runner.h"
#include "gtest/gtest.h"
#include "kvtransfer/in_process_transport.h"
#include "worker/test_rig.h"

namespace baton::worker {

inline RigWorker::Options PrefillOptions() {
  RigWorker::Options options;
  options.role = v1::ROLE_PREFILL;
  options.name = "prefill";
  options.number = 1;
  return options;
}

inline RigWorker::Options DecodeOptions() {
  RigWorker::Options options;
  options.number = 2;
  return options;
}

class HandoverTest : public testing::Test {
 protected:
  using microseconds = std::chrono::microseconds;
  using milliseconds = std::chrono::milliseconds;
  using seconds = std::chrono::seconds;

  HandoverTest()
      : network_([this](const kvtransfer::InProcessNetwork::Wire&, Executor& to, std::string&,
                        std::function<void()> deliver) {
          if (hold_data_) return held_.push_back(std::move(deliver));
          to.Post(std::move(deliver));
        }) {}

  void Start(RigWorker::Options prefill = PrefillOptions(),
             RigWorker::Options decode = DecodeOptions()) {
    decode_ = std::make_unique<RigWorker>(world_, network_, sinks_, decode);
    prefill_ = std::make_unique<RigWorker>(world_, network_, sinks_, prefill);
    to_decode_ = std::make_unique<RigSession>(world_, *decode_);
    to_prefill_ = std::make_unique<RigSession>(world_, *prefill_);
    to_prefill_->on_event = [this](const v1::WorkerEvent& event) {
      if (event.has_started() && attach_) to_decode_->Attach(AttemptOf(event));
    };
    world_.RunFor(milliseconds(1));
  }

  void Restart(const RigWorker::Options& prefill, const RigWorker::Options& decode) {
    to_prefill_.reset();
    to_decode_.reset();
    prefill_.reset();
    decode_.reset();
    Start(prefill, decode);
  }

  DecoderState State(uint64_t request, uint32_t prompt = 100, uint32_t max_tokens = 10,
                     uint32_t n = 1) {
    DecoderState state =
        engine::FixtureState(engine::FixturePrompt(prompt, request), max_tokens, request, n);
    state.attempt = RigAttempt(request);
    return state;
  }
  std::vector<TokenId> Expected(const DecoderState& state, uint32_t choice = 0) {
    return engine::FakeContinuation(engine::FakeLayout(16, window_), engine::FixtureVocab(), 512,
                                    state, choice);
  }
  absl::Status Submit(const DecoderState& state) {
    return to_prefill_->Submit(state, {decode_->AsSink()});
  }
  void ExpectIdle() {
    EXPECT_TRUE(prefill_->all_free());
    EXPECT_TRUE(decode_->all_free());
    EXPECT_TRUE(prefill_->core->idle());
    EXPECT_TRUE(decode_->core->idle());
    EXPECT_TRUE(prefill_->core->pool().CheckIntegrity().ok());
    EXPECT_TRUE(decode_->core->pool().CheckIntegrity().ok());
  }
  // The router was told so by the sink.
  bool Revoked(const AttemptId& attempt) const {
    const std::vector<v1::WorkerEvent> events = to_decode_->EventsOf(attempt);
    return events.size() == 1 && events[0].has_lost() &&
           events[0].lost().cause() == v1::CAUSE_PREEMPTED;
  }
  // Started, every FirstToken, HandedOff at the source; all tokens from the first at the sink.
  void ExpectCrossed(const DecoderState& state) {
    const auto n = static_cast<uint32_t>(state.choices.size());
    const std::vector<v1::WorkerEvent> source = to_prefill_->EventsOf(state.attempt);
    ASSERT_EQ(source.size(), 2u + n) << state.prompt.size();
    EXPECT_EQ(source.front().started().sink_address(), "decode");
    EXPECT_GT(source.back().handed_off().bytes(), 0u);
    for (uint32_t choice = 0; choice < n; ++choice) {
      const std::vector<TokenId> expected = Expected(state, choice);
      const v1::Token& first = source[1 + choice].first_token().token();
      EXPECT_EQ(first.choice(), choice);
      EXPECT_EQ(first.token(), expected[0]);
      EXPECT_EQ(first.position(), state.prompt.size());
      EXPECT_EQ(to_decode_->TokensOf(state.attempt, choice), expected);
    }
    EXPECT_TRUE(to_decode_->Finished(state.attempt, n));
    EXPECT_EQ(to_decode_->EventsOf(state.attempt)[0].token().position(), state.prompt.size());
  }

  uint32_t window_ = 0;  // RigWorker::Options::window
  SimWorld world_;
  bool hold_data_ = false;
  std::vector<std::function<void()>> held_;
  kvtransfer::InProcessNetwork network_;
  RigSinks sinks_;
  std::unique_ptr<RigWorker> decode_;
  std::unique_ptr<RigWorker> prefill_;
  std::unique_ptr<RigSession> to_decode_;
  std::unique_ptr<RigSession> to_prefill_;
  bool attach_ = true;
};

}  // namespace baton::worker

#endif  // BATON_PREFILL_WORKER_HANDOVER_FIXTURE_H_
