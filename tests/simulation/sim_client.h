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
    bool tight_pool = false;  // may be refused for lack of room
    bool faults = false;      // may lose a worker
    bool damage = false;      // its KV may be damaged on the way
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
  size_t tokens() const { return tokens_; }
  std::string ToString() const;

 private:
  class Observer;
  void OnAdmitted();
  void OnPromptLogprobs(const std::vector<TokenLogprobs>& logprobs);
  void OnToken(const router::TokenEvent& event);
  bool RightLogprobs(const router::TokenEvent& event) const;
  void OnFinished(const absl::Status& status);
  std::string WhyNotAllowed(const absl::Status& status) const;
  void Report(const std::string& what);

  const Options options_;
  SimRouter& router_;
  // What a right cluster delivers, and how much of it may be shown after each token.
  std::vector<TokenId> expected_;
  std::vector<uint64_t> visible_;
  router::Finish expected_finish_ = router::Finish::kNone;
  uint64_t number_ = 0;
  bool admitted_ = false;
  bool cancelled_ = false;
  size_t prompt_logprobs_ = 0;
  size_t tokens_ = 0;
  router::Finish finish_ = router::Finish::kNone;
  std::optional<Time> deadline_;
  std::optional<absl::Status> end_;
};

}  // namespace baton::sim

#endif  // BATON_TESTS_SIMULATION_SIM_CLIENT_H_
