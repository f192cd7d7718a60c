// One request's client: cancels when planned, and knows what it must be told.
#ifndef BATON_TESTS_SIMULATION_SIM_CLIENT_H_
#define BATON_TESTS_SIMULATION_SIM_CLIENT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "router/request.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_router.h"

namespace baton::sim {

class SimClient {
 public:
  struct Options {
    size_t index = 0;
    const PlannedRequest* plan = nullptr;
    bool faults = false;  // may lose a worker
    bool damage = false;  // its KV may be damaged on the way
    uint32_t window = 0;  // Scenario::window
    std::function<void(const std::string&)> report;
    std::function<void(const std::string& kind, const std::string& text)> trace;
    std::function<void()> on_end;
  };
  // `router` must outlive it.
  SimClient(Options options, SimRouter& router);

  // On the router's executor.
  void Send();
  void Cancel();

  bool ended() const { return end_.has_value(); }
  const absl::Status& end() const { return *end_; }
  uint64_t number() const { return number_; }
  size_t tokens() const;  // of all choices
  size_t cached_tokens() const { return cached_tokens_; }
  std::string ToString() const;

 private:
  class Observer;
  // What a right cluster delivers of a choice, how much of it may be shown after each token, and
  // what came.
  struct Choice {
    std::vector<TokenId> expected;
    std::vector<uint64_t> visible;
    router::Finish expected_finish = router::Finish::kNone;
    size_t tokens = 0;
    router::Finish finish = router::Finish::kNone;
  };
  static Choice Expected(const DecoderState& state, uint32_t choice, uint32_t window);
  void OnAdmitted();
  void OnPromptLogprobs(const std::vector<TokenLogprobs>& logprobs);
  void OnToken(const router::TokenEvent& event);
  std::string WhyWrong(const router::TokenEvent& event) const;
  bool RightLogprobs(const router::TokenEvent& event) const;
  void OnFinished(const absl::Status& status, size_t cached_tokens);
  std::string WhyTooManyCached() const;
  std::string WhyNotAllowed(const absl::Status& status) const;
  void Report(const std::string& what);

  const Options options_;
  SimRouter& router_;
  std::vector<Choice> choices_;
  uint64_t number_ = 0;
  bool admitted_ = false;
  bool cancelled_ = false;
  size_t prompt_logprobs_ = 0;
  size_t cached_tokens_ = 0;
  std::optional<Time> deadline_;
  std::optional<absl::Status> end_;
};

}  // namespace baton::sim

#endif  // BATON_TESTS_SIMULATION_SIM_CLIENT_H_
