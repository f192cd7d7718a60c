// What the handoff hides: KV travels while the prompt is still computed, and the first token does
// not wait for it.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/log.h"
#include "engine/fake_model_runner.h"
#include "gtest/gtest.h"
#include "kvtransfer/in_process_transport.h"
#include "router/request.h"
#include "tests/simulation/sim_network.h"
#include "tests/simulation/sim_router.h"
#include "tests/simulation/sim_worker.h"

namespace baton::sim {
namespace {

using std::chrono::seconds;

constexpr uint32_t kPrompt = 100;

struct Heard {
  std::vector<TokenId> tokens;
  std::optional<absl::Status> end;
};

class Listener : public router::RequestObserver {
 public:
  explicit Listener(Heard& heard) : heard_(heard) {}
  void OnAdmitted() override {}
  void OnToken(const router::TokenEvent& event) override { heard_.tokens.push_back(event.token); }
  void OnFinished(const absl::Status& status, const router::RequestSummary&) override {
    heard_.end = status;
  }

 private:
  Heard& heard_;
};

// One router, one prefill worker that computes 16 tokens a step, one decode worker.
class HandoffOverlapTest : public testing::Test {
 protected:
  HandoffOverlapTest()
      : data_([this](const auto& wire, Executor& to, std::string&, std::function<void()> deliver) {
          if (hold_data_ && wire.to == "decode") {
            held_.emplace_back(&to, std::move(deliver));
          } else {
            to.Post(std::move(deliver));
          }
        }) {
    SimWorker::Environment environment{world_,      network_, data_,  log_,
                                       Directory(), nullptr,  nullptr};
    environment.directory = [this](const std::string& name) {
      return name == "decode" ? decode_.get() : name == "prefill" ? prefill_.get() : nullptr;
    };
    decode_ =
        std::make_unique<SimWorker>(SimWorkerOptions{.name = "decode", .seed = 2}, environment);
    environment.on_step = [this](const engine::Step& step) { OnPrefillStep(step); };
    prefill_ = std::make_unique<SimWorker>(
        SimWorkerOptions{.name = "prefill", .prefill = true, .step_tokens = 16, .seed = 1},
        environment);
    SimRouter::Options options;
    options.name = "router";
    options.workers = {"prefill", "decode"};
    options.seed = 3;
    router_ = std::make_unique<SimRouter>(options, world_, network_, log_, environment.directory);
    world_.RunFor(seconds(1));
  }

  // Each one's last frames are for the other, so both must still be there.
  ~HandoffOverlapTest() override {
    prefill_->Die();
    decode_->Die();
  }

  void OnPrefillStep(const engine::Step& step) {
    const engine::StepItem& item = step.items.front();
    if (item.start_position + item.tokens.size() == kPrompt) {
      landed_at_last_chunk_ = decode_->landed_bytes();
    }
  }

  void Generate() {
    state_.choices.resize(1);
    for (uint32_t i = 0; i < kPrompt; ++i) state_.prompt.push_back(static_cast<TokenId>(i));
    state_.stop.max_tokens = 20;
    state_.stop.ignore_eos = true;
    router::RequestSpec spec;
    spec.prompt = state_.prompt;
    spec.stop = state_.stop;
    spec.arrived = router_->executor().Now();
    router_->core().Generate(std::move(spec), std::make_unique<Listener>(heard_));
  }

  void ReleaseData() {
    hold_data_ = false;
    for (auto& [to, deliver] : held_) to->Post(std::move(deliver));
    held_.clear();
  }

  std::vector<TokenId> Expected() const {
    return engine::FakeContinuation(engine::FakeLayout(16), SimVocab(), 256, state_);
  }

  const Logger log_ = Logger::Silent();
  SimWorld world_;
  SimNetwork network_{world_, 1, {}};
  bool hold_data_ = false;
  std::vector<std::pair<Executor*, std::function<void()>>> held_;
  kvtransfer::InProcessNetwork data_;
  std::unique_ptr<SimWorker> prefill_;
  std::unique_ptr<SimWorker> decode_;
  std::unique_ptr<SimRouter> router_;
  DecoderState state_;
  Heard heard_;
  std::optional<uint64_t> landed_at_last_chunk_;
};

TEST_F(HandoffOverlapTest, LayersLandBeforeTheLastChunkStarts) {
  Generate();
  world_.RunFor(seconds(1));
  ASSERT_TRUE(heard_.end.has_value());
  EXPECT_TRUE(heard_.end->ok()) << *heard_.end;
  EXPECT_EQ(heard_.tokens, Expected());
  ASSERT_TRUE(landed_at_last_chunk_.has_value());
  // The first layer of the first chunk: one block, keys and values.
  const kv::KvLayout layout = engine::FakeLayout(16);
  EXPECT_GE(*landed_at_last_chunk_, layout.PieceBytes(0, 0) + layout.PieceBytes(0, 1));
}

TEST_F(HandoffOverlapTest, TheFirstTokenReachesTheClientWhileTheSinkHasNoKv) {
  hold_data_ = true;
  Generate();
  world_.RunFor(seconds(1));
  EXPECT_EQ(decode_->landed_bytes(), 0u);
  EXPECT_EQ(heard_.tokens, std::vector<TokenId>{Expected().front()});
  EXPECT_FALSE(heard_.end.has_value());
  ReleaseData();
  world_.RunFor(seconds(1));
  ASSERT_TRUE(heard_.end.has_value());
  EXPECT_EQ(heard_.tokens, Expected());
}

}  // namespace
}  // namespace baton::sim
