#include "tests/simulation/sim_client.h"

#include <algorithm>
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
  void OnFinished(const absl::Status& status, const router::RequestSummary& summary) override {
    client_.OnFinished(status, summary.cached_tokens);
  }

 private:
  SimClient& client_;
};

SimClient::Choice SimClient::Expected(const DecoderState& state, uint32_t choice, uint32_t window) {
  const SimWorkerOptions worker;
  Choice out;
  out.expected = engine::FakeContinuation(engine::FakeLayout(worker.block_size, window), SimVocab(),
                                          worker.context_length, state, choice);
  StopMatcher stop(SimVocab(), state.stop);
  for (size_t i = 0; i < out.expected.size(); ++i) {
    const bool stopped = stop.Accept(out.expected[i]) != StopReason::kNone;
    if (i + 1 == out.expected.size()) {
      out.expected_finish = stopped ? router::Finish::kStop : router::Finish::kLength;
      if (!stopped) stop.Finish();
    }
    out.visible.push_back(stop.visible_bytes());
  }
  return out;
}

SimClient::SimClient(Options options, SimRouter& router)
    : options_(std::move(options)), router_(router) {
  const DecoderState& state = options_.plan->state;
  for (uint32_t i = 0; i < state.choices.size(); ++i)
    choices_.push_back(Expected(state, i, options_.window));
}

size_t SimClient::tokens() const {
  size_t tokens = 0;
  for (const Choice& choice : choices_) tokens += choice.tokens;
  return tokens;
}

void SimClient::Send() {
  const DecoderState& state = options_.plan->state;
  router::RequestSpec spec;
  spec.request_id = "client-" + std::to_string(options_.index);
  spec.prompt = state.prompt;
  spec.tenant = options_.plan->tenant;
  spec.bypass_cache = options_.plan->bypass_cache;
  spec.sampling = state.sampling;
  spec.stop = state.stop;
  spec.logprobs = state.logprobs;
  spec.n = static_cast<uint32_t>(state.choices.size());
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
  if (tokens() > 0) return Report("got prompt log probabilities after a token");
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
  options_.trace("token", std::to_string(options_.index) + ":" + std::to_string(event.choice) +
                              ":" + std::to_string(event.position) + ":" +
                              std::to_string(event.token));
  if (!admitted_) return Report("got a token before it was admitted");
  if (ended()) return Report("got a token after its end");
  if (event.choice >= choices_.size()) return Report("got a token of a choice that it has not");
  const std::string wrong = WhyWrong(event);
  Choice& choice = choices_[event.choice];
  if (!wrong.empty()) {
    return Report("got, as token " + std::to_string(choice.tokens) + " of choice " +
                  std::to_string(event.choice) + ", " + wrong);
  }
  ++choice.tokens;
  choice.finish = event.finish;
}

std::string SimClient::WhyWrong(const router::TokenEvent& event) const {
  const Choice& choice = choices_[event.choice];
  const size_t index = choice.tokens;
  if (choice.finish != router::Finish::kNone) return "one after the last";
  if (index >= choice.expected.size()) return "more than there are";
  if (event.position != options_.plan->state.prompt.size() + index) {
    return "position " + std::to_string(event.position);
  }
  if (event.token != choice.expected[index]) {
    return std::to_string(event.token) + ", right is " + std::to_string(choice.expected[index]);
  }
  if (!RightLogprobs(event)) return "no or wrong log probabilities";
  if (event.visible_bytes != choice.visible[index]) {
    return std::to_string(event.visible_bytes) + " bytes to show, right is " +
           std::to_string(choice.visible[index]);
  }
  const bool last = index + 1 == choice.expected.size();
  const bool right = event.finish == (last ? choice.expected_finish : router::Finish::kNone);
  return right ? "" : "a wrong finish reason";
}

void SimClient::OnFinished(const absl::Status& status, size_t cached_tokens) {
  // Without the details: the order of payloads is random.
  options_.trace("end", std::to_string(options_.index) + ":" +
                            absl::StatusCodeToString(status.code()) + ":" +
                            std::string(status.message()));
  if (ended()) return Report("ended twice");
  end_ = status;
  const std::string why_not = WhyNotAllowed(status);
  if (!why_not.empty()) Report("ended with " + status.ToString() + ": " + why_not);
  cached_tokens_ = cached_tokens;
  const std::string too_many = WhyTooManyCached();
  if (!too_many.empty()) {
    Report("found " + std::to_string(cached_tokens) + " cached tokens: " + too_many);
  }
  options_.on_end();
}

// An attempt after the first may find what the request itself has left.
std::string SimClient::WhyTooManyCached() const {
  const PlannedRequest& plan = *options_.plan;
  if (cached_tokens_ == 0) return "";
  if (plan.bypass_cache) return "it bypasses caches";
  if (plan.state.logprobs.prompt.has_value()) return "its prompt's rows are all wanted";
  if (cached_tokens_ >= plan.state.prompt.size()) return "the last token is always computed";
  if (router_.Submits(number_) > 1) return "";
  return cached_tokens_ <= plan.most_cached
             ? ""
             : "others of its tenant share " + std::to_string(plan.most_cached);
}

std::string SimClient::WhyNotAllowed(const absl::Status& status) const {
  switch (status.code()) {
    case StatusCode::kOk:
      return std::all_of(
                 choices_.begin(), choices_.end(),
                 [](const Choice& choice) { return choice.tokens == choice.expected.size(); })
                 ? ""
                 : "tokens are missing";
    case StatusCode::kCancelled:
      return cancelled_ ? "" : "nobody cancelled";
    case StatusCode::kDeadlineExceeded:
      if (!deadline_.has_value()) return "it has no deadline";
      return router_.executor().Now() >= *deadline_ ? "" : "the deadline has not passed";
    case StatusCode::kResourceExhausted:
      if (router::ReasonOf(status) == router::kReasonTooLate) {
        return deadline_.has_value() && !admitted_ ? "" : "nothing could be too late";
      }
      return "lack of room is waited out";
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
         std::to_string(options_.plan->state.prompt.size()) + ", " +
         std::to_string(choices_.size()) + " choices, " + std::to_string(tokens()) + " tokens)";
}

}  // namespace baton::sim
