// The core against workers that do what the test says, on a virtual clock; for tests.
#ifndef BATON_ROUTER_ROUTER_CORE_FIXTURE_H_
#define BATON_ROUTER_ROUTER_CORE_FIXTURE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/log.h"
#include "common/metrics.h"
#include "common/sim_executor.h"
#include "gtest/gtest.h"
#include "router/fake_worker.h"
#include "router/router_core.h"
#include "router/status_details.h"

namespace baton::router {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Seen {
  int admitted = 0;
  int ends = 0;
  std::vector<TokenId> tokens;  // of all choices, as they came
  std::vector<uint32_t> positions;
  std::map<uint32_t, std::vector<TokenId>> choices;
  std::map<uint32_t, Finish> finishes;  // of choices that are over
  std::vector<float> logprobs;          // of tokens that have one
  std::vector<float> prompt_logprobs;   // checked: before the tokens
  absl::Status status;
  RequestSummary summary;
};

class SeenObserver : public RequestObserver {
 public:
  explicit SeenObserver(Seen& seen) : seen_(seen) {}
  void OnAdmitted() override { ++seen_.admitted; }
  void OnPromptLogprobs(std::vector<TokenLogprobs> logprobs) override {
    EXPECT_TRUE(seen_.tokens.empty());
    for (const TokenLogprobs& one : logprobs) seen_.prompt_logprobs.push_back(one.logprob);
  }
  void OnToken(const TokenEvent& event) override {
    EXPECT_EQ(seen_.ends, 0);
    if (event.logprobs.has_value()) seen_.logprobs.push_back(event.logprobs->logprob);
    EXPECT_FALSE(seen_.finishes.contains(event.choice));
    seen_.tokens.push_back(event.token);
    seen_.positions.push_back(event.position);
    seen_.choices[event.choice].push_back(event.token);
    if (event.finish != Finish::kNone) seen_.finishes[event.choice] = event.finish;
  }
  void OnFinished(const absl::Status& status, const RequestSummary& summary) override {
    ++seen_.ends;
    seen_.status = status;
    seen_.summary = summary;
  }

 private:
  Seen& seen_;
};

class RouterCoreTest : public testing::Test {
 protected:
  FakeWorker& AddWorker(const std::string& name, bool prefill) {
    FakeWorker::Options options;
    options.name = name;
    options.prefill = prefill;
    options.epoch = Epoch{100, workers_.size() + 1};
    return AddWorker(options);
  }
  FakeWorker& AddWorker(FakeWorker::Options options) {
    const std::string name = options.name;
    workers_[name] = std::make_unique<FakeWorker>(node_, std::move(options));
    options_.workers.push_back({name, workers_[name]->options().prefill});
    return *workers_[name];
  }

  void Start() {
    options_.epoch = Epoch{42, 42};
    ASSERT_TRUE(options_.Validate().ok());
    core_ = std::make_unique<RouterCore>(
        options_, node_, [this](const std::string& name) { return workers_.at(name)->Connect(); },
        metrics_, log_);
    core_->Start();
    Run();
  }

  void Run(Duration time = milliseconds(10)) { world_.RunFor(time); }

  uint64_t Ask(Seen& seen, size_t prompt_tokens = 20, uint32_t max_tokens = 8,
               std::optional<Duration> timeout = std::nullopt) {
    RequestSpec spec = spec_;
    spec.prompt.assign(prompt_tokens, 5);
    spec.stop.max_tokens = max_tokens;
    spec.arrived = node_.Now();
    if (timeout.has_value()) spec.deadline = node_.Now() + *timeout;
    const uint64_t number = core_->Generate(std::move(spec), std::make_unique<SeenObserver>(seen));
    Run();
    return number;
  }

  double Metric(const std::string& line_start) {
    const std::string text = metrics_.Scrape();
    const size_t at = text.find("\n" + line_start + " ");
    if (at == std::string::npos) return -1;
    return std::stod(text.substr(at + line_start.size() + 2));
  }

  SimWorld world_;
  SimExecutor node_{world_, "router", seconds(1000)};
  MetricsRegistry metrics_;
  Logger log_ = Logger::Silent();
  CoreOptions options_;
  RequestSpec spec_;  // what Ask does not set
  std::map<std::string, std::unique_ptr<FakeWorker>> workers_;
  std::unique_ptr<RouterCore> core_;
};

class SplitTest : public RouterCoreTest {
 protected:
  void SetUp() override {
    p_ = &AddWorker("p", true);
    d_ = &AddWorker("d", false);
    Start();
  }
  // Up to the first token, which is 100 at position 20.
  void RunToFirstToken(Seen& seen) {
    Ask(seen);
    RunAttemptToFirstToken();
  }
  void RunAttemptToFirstToken() {
    p_->Started(p_->last_attempt(), *d_);
    Run();
    p_->FirstToken(p_->last_attempt(), 20, 100);
    Run();
  }

  FakeWorker* p_ = nullptr;
  FakeWorker* d_ = nullptr;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_ROUTER_CORE_FIXTURE_H_
