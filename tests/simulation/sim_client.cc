#include "tests/simulation/sim_client.h"

#include <memory>
#include <utility>

#include "engine/fake_model_runner.h"
#include "router/error_reasons.h"
#include "router/status_details.h"
#include "text/stop.h"

namespace baton::sim {

using absl::StatusCode;

class SimClient::Observer : public router::RequestObserver {
 public:
  explicit Observer(SimClient& client) : client_(client) {}
  void OnAdmitted() override { client_.OnAdmitted(); }
  void OnPromptLogprobs(std::vector<TokenLogprobs> logprobs) override {
    client_.OnPromptLogprobs(logprobs);
  }
  void OnToken(const router::TokenEvent& event) override { client_.OnToken(event); }
  void OnFinished(const absl::Status& status, const router::RequestSummary&) override {
    client_.OnFinished(status);
  }

 private:
  SimClient& client_;
};

SimClient::SimClient(Options options, SimRouter& router)
    : options_(std::move(options)), router_(router) {
  const SimWorkerOptions worker;
  const DecoderState& state = options_.plan->state;
  expected_ = engine::FakeContinuation(engine::FakeLayout(worker.block_size), SimVocab(),
                                       worker.context_length, state);
  StopMatcher stop(SimVocab(), state.stop);
  for (size_t i = 0; i < expected_.size(); ++i) {
    const bool stopped = stop.Accept(expected_[i]) != StopReason::kNone;
    if (i + 1 == expected_.size()) {
      expected_finish_ = stopped ? router::Finish::kStop : router::Finish::kLength;
      if (!stopped) stop.Finish();
    }
    visible_.push_back(stop.visible_bytes());
  }
}

void SimClient::Send() {
  const DecoderState& state = options_.plan->state;
  router::RequestSpec spec;
  spec.request_id = "client-" + std::to_string(options_.index);
  spec.prompt = state.prompt;
  spec.sampling = state.sampling;
  spec.stop = state.stop;
  spec.logprobs = state.logprobs;
  spec.arrived = router_.executor().Now();
  if (options_.plan->deadline_after.has_value()) {
    deadline_ = spec.arrived + *options_.plan->deadline_after;
    spec.deadline = deadline_;
  }
  number_ = router_.core().Generate(std::move(spec), std::make_unique<Observer>(*this));
}

void SimClient::Cancel() {
  if (ended()) return;
  cancelled_ = true;
  router_.core().Cancel(number_, absl::CancelledError("the client went away"));
}

void SimClient::OnAdmitted() {
  if (admitted_ || ended()) Report("was admitted twice or after its end");
  admitted_ = true;
}

void SimClient::OnPromptLogprobs(const std::vector<TokenLogprobs>& logprobs) {
  const DecoderState& state = options_.plan->state;
  if (tokens_ > 0) return Report("got prompt log probabilities after a token");
  for (const TokenLogprobs& one : logprobs) {
    const size_t position = ++prompt_logprobs_;
    if (position >= state.prompt.size() ||
        one != engine::FakeLogprobs(state.prompt[position], state.logprobs.prompt.value_or(0))) {
      return Report("got wrong log probabilities at prompt position " + std::to_string(position));
    }
  }
}

bool SimClient::RightLogprobs(const router::TokenEvent& event) const {
  const LogprobParams& asked = options_.plan->state.logprobs;
  if (asked.prompt.has_value() && prompt_logprobs_ + 1 != options_.plan->state.prompt.size()) {
    return false;
  }
  if (!asked.output.has_value()) return !event.logprobs.has_value();
  return event.logprobs == engine::FakeLogprobs(event.token, *asked.output);
}

void SimClient::OnToken(const router::TokenEvent& event) {
  options_.trace("token", std::to_string(options_.index) + ":" + std::to_string(event.position) +
                              ":" + std::to_string(event.token));
  const size_t index = tokens_++;
  if (!admitted_) return Report("got a token before it was admitted");
  if (ended()) return Report("got a token after its end");
  if (finish_ != router::Finish::kNone) return Report("got a token after the last");
  if (index >= expected_.size()) return Report("got more tokens than there are");
  if (event.position != options_.plan->state.prompt.size() + index) {
    return Report("got position " + std::to_string(event.position) + " as token " +
                  std::to_string(index));
  }
  if (event.token != expected_[index]) {
    return Report("got token " + std::to_string(event.token) + " at index " +
                  std::to_string(index) + ", right is " + std::to_string(expected_[index]));
  }
  if (!RightLogprobs(event)) return Report("lacks log probabilities, or has wrong ones");
  if (event.visible_bytes != visible_[index]) {
    return Report("may show " + std::to_string(event.visible_bytes) + " bytes, right is " +
                  std::to_string(visible_[index]));
  }
  finish_ = event.finish;
  const router::Finish right =
      index + 1 == expected_.size() ? expected_finish_ : router::Finish::kNone;
  if (finish_ != right) Report("got a wrong finish reason at index " + std::to_string(index));
}

void SimClient::OnFinished(const absl::Status& status) {
  // Without the details: the order of payloads is random.
  options_.trace("end", std::to_string(options_.index) + ":" +
                            absl::StatusCodeToString(status.code()) + ":" +
                            std::string(status.message()));
  if (ended()) return Report("ended twice");
  end_ = status;
  const std::string why_not = WhyNotAllowed(status);
  if (!why_not.empty()) Report("ended with " + status.ToString() + ": " + why_not);
  options_.on_end();
}

std::string SimClient::WhyNotAllowed(const absl::Status& status) const {
  switch (status.code()) {
    case StatusCode::kOk:
      return tokens_ == expected_.size() ? "" : "tokens are missing";
    case StatusCode::kCancelled:
      return cancelled_ ? "" : "nobody cancelled";
    case StatusCode::kDeadlineExceeded:
      if (!deadline_.has_value()) return "it has no deadline";
      return router_.executor().Now() >= *deadline_ ? "" : "the deadline has not passed";
    case StatusCode::kResourceExhausted:
      if (router::ReasonOf(status) == router::kReasonTooLate) {
        return deadline_.has_value() && !admitted_ ? "" : "nothing could be too late";
      }
      return options_.tight_pool ? "" : "there is room";
    case StatusCode::kUnavailable:
      return options_.faults ? "" : "no worker was lost";
    case StatusCode::kInternal:
      return options_.damage ? "" : "nothing was damaged";
    default:
      return "never right here";
  }
}

void SimClient::Report(const std::string& what) { options_.report(ToString() + " " + what); }

std::string SimClient::ToString() const {
  return "request " + std::to_string(options_.index) + " (number " + std::to_string(number_) +
         " of " + router_.executor().name() + ", prompt " +
         std::to_string(options_.plan->state.prompt.size()) + ", " + std::to_string(tokens_) +
         " of " + std::to_string(expected_.size()) + " tokens)";
}

}  // namespace baton::sim
