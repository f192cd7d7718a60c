#include "router/request_flow.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/status_macros.h"
#include "proto/mapping/decoder_state.h"
#include "proto/mapping/ids.h"
#include "proto/mapping/spans.h"
#include "router/attempt_state.h"
#include "router/error_reasons.h"
#include "router/status_details.h"
#include "router/worker_cause.h"

namespace baton::router {
namespace {

using worker::v1::WorkerEvent;

// The observer knows the vocabulary.
constexpr uint32_t kAnyToken = std::numeric_limits<int32_t>::max();

router::Finish FinishOf(worker::v1::FinishReason reason) {
  if (reason == worker::v1::FINISH_REASON_STOP) return router::Finish::kStop;
  if (reason == worker::v1::FINISH_REASON_LENGTH) return router::Finish::kLength;
  return router::Finish::kNone;
}

// Where a request was when a worker gave it up: how the text of the error begins.
constexpr char kPrefillStage[] = "prefill";
constexpr char kHandoffStage[] = "handoff";  // one of the two lost the other
constexpr char kDecodeStage[] = "decode";

absl::Status ProtocolError(const std::string& what) {
  return ErrorWithReason(absl::StatusCode::kInternal, what, kReasonProtocol);
}

// A time that a worker says it took.
Duration Reported(uint64_t ns) { return proto::AgeFromPeer(ns).value_or(proto::kMaxSpan); }

}  // namespace

RequestFlow::RequestFlow(uint64_t number, RequestSpec spec,
                         std::unique_ptr<RequestObserver> observer, const FlowContext& context,
                         Host& host)
    : number_(number),
      spec_(std::move(spec)),
      observer_(std::move(observer)),
      context_(context),
      host_(host),
      delivered_(spec_.choices(), spec_.prompt.size(), spec_.stop.max_tokens) {}

void RequestFlow::Admit() {
  context_.metrics.prompt_tokens.Increment(static_cast<double>(spec_.prompt.size()));
  observer_->OnAdmitted();
  if (!spec_.deadline.has_value()) return;
  deadline_ = context_.executor.PostAt(*spec_.deadline, [this] {
    End(ErrorWithReason(absl::StatusCode::kDeadlineExceeded, "the deadline passed",
                        kReasonDeadline));
  });
}

PlacementRequest RequestFlow::placement_request() const {
  PlacementRequest request;
  request.prompt_tokens = spec_.prompt.size();
  request.n = spec_.choices();
  request.max_tokens = spec_.stop.max_tokens;
  request.avoid = avoid_;
  request.cut_off = cut_off_;
  return request;
}

void RequestFlow::Submit(const Placement& placement) {
  handed_off_ = false;
  summary_.cached_tokens = 0;
  Attempt attempt;
  attempt.number = attempt_.number + 1;
  attempt.live = true;
  attempt.source = placement.source;
  attempt.submitted = context_.executor.Now();
  for (const size_t sink : placement.sinks) {
    attempt.sinks.push_back({sink, context_.links[sink]->view().epoch});
  }
  const size_t first = placement.source.value_or(placement.sinks[0]);
  attempt.source_epoch = context_.links[first]->view().epoch;
  if (!placement.source.has_value()) attempt.sink = first;
  const uint64_t new_tokens = spec_.prompt.size() - placement.cached_tokens;
  attempt.prompt = CountLease(*context_.links[first], &WorkerLink::AddPrompt, new_tokens);
  attempt.stream = StreamLease(*context_.links[placement.sinks[0]]);
  attempt.ticket = context_.links[first]->TakeTicket();
  attempt_ = std::move(attempt);
  context_.metrics.attempts.Increment();
  context_.links[first]->Submit(
      MakeSubmit(), new_tokens,
      [&host = host_, id = attempt_id()](absl::Status status) { host.SubmitAnswered(id, status); });
}

CountLease RequestFlow::StreamLease(WorkerLink& sink) const {
  return CountLease(sink, &WorkerLink::AddStream, spec_.choices());
}

worker::v1::SubmitRequest RequestFlow::MakeSubmit() const {
  const size_t first = attempt_.source.value_or(attempt_.sinks[0].worker);
  worker::v1::SubmitRequest request;
  *request.mutable_state() =
      proto::ToProto(StateOf(spec_, context_.options, attempt_id(),
                             context_.links[first]->view().numerics_id, context_.executor.Now()));
  if (!attempt_.source.has_value()) return request;
  for (const NamedSink& sink : attempt_.sinks) {
    auto* out = request.add_sinks();
    out->set_address(context_.links[sink.worker]->view().transfer_address);
    proto::Set(sink.epoch, *out->mutable_epoch());
  }
  return request;
}

void RequestFlow::OnSubmitAnswer(const absl::Status& status) {
  if (status.ok()) {
    attempt_.answered = context_.executor.Now();
    if (!attempt_.source.has_value()) attempt_.ticket.Worked();
    Step(attempt_.source.has_value() ? FlowEvent::kSubmittedSplit : FlowEvent::kSubmittedAlone,
         status);
    return;
  }
  context_.log.Info("submit refused",
                    {{"request", attempt_id().ToString()}, {"why", status.ToString()}});
  avoid_ = {attempt_.source.value_or(attempt_.sinks[0].worker)};
  // After an event only the answer was lost.
  if (state_ == RequestState::kQueued && NotReached(status)) attempt_.ticket.Failed();
  Step(SubmitFailed(status) ? FlowEvent::kSinkFailed : FlowEvent::kSubmitRefused,
       SubmitStatus(status, attempt_.source.has_value() ? kPrefillStage : kDecodeStage));
}

bool RequestFlow::Names(size_t worker) const {
  return FromSource(worker) || FromSink(worker) || avoid_.contains(worker) ||
         cut_off_.contains(worker) ||
         std::any_of(attempt_.sinks.begin(), attempt_.sinks.end(),
                     [worker](const NamedSink& sink) { return sink.worker == worker; });
}

void RequestFlow::OnWorkerEvent(size_t worker, const WorkerEvent& event) {
  const bool from_source = FromSource(worker);
  if (!from_source && !FromSink(worker)) {
    // A named sink that is not attached may say Lost before the source says that it had granted.
    if (!event.has_lost()) return context_.metrics.odd_events.Increment();
    attempt_.early_losses[worker] = event.lost().cause();
    return;
  }
  if (!Sends(from_source, event.event_case())) return context_.metrics.odd_events.Increment();
  switch (event.event_case()) {
    case WorkerEvent::kStarted:
      return OnStarted(event.started());
    case WorkerEvent::kFirstToken:
      return OnToken(event.first_token().token(), from_source);
    case WorkerEvent::kToken:
      return OnToken(event.token(), from_source);
    case WorkerEvent::kPromptLogprobs:
      return OnPromptLogprobs(event.prompt_logprobs());
    case WorkerEvent::kCachedPrompt:
      return OnCachedPrompt(event.cached_prompt().tokens(), from_source);
    case WorkerEvent::kHandedOff:
      return OnHandedOff(event.handed_off());
    case WorkerEvent::kNoRoom:
      return OnNoRoom(event.no_room().cause());
    case WorkerEvent::kLost:
      return OnGivenUp(worker, event.lost().cause(), absl::OkStatus());
    case WorkerEvent::kFailed:
      return OnGivenUp(worker, event.failed().cause(),
                       absl::Status(static_cast<absl::StatusCode>(event.failed().code()),
                                    event.failed().message()));
    default:
      return;
  }
}

// No sink granted. A full one is waited for; when the source reached none, it is of no use here.
void RequestFlow::OnNoRoom(worker::v1::Cause cause) {
  if (cause == worker::v1::CAUSE_UNSPECIFIED) cause = worker::v1::CAUSE_NO_ROOM;
  for (const NamedSink& sink : attempt_.sinks) avoid_.insert(sink.worker);
  attempt_.preempted = cause == worker::v1::CAUSE_PREEMPTED;
  if (!attempt_.preempted && cause != worker::v1::CAUSE_NO_ROOM) {
    cut_off_.insert(*attempt_.source);
    attempt_.ticket.Failed();
  }
  Step(FlowEvent::kNoRoom, StatusOf(cause, absl::OkStatus(), kPrefillStage));
}

void RequestFlow::OnStarted(const worker::v1::Started& started) {
  const Epoch epoch = proto::Get(started.sink_epoch());
  const auto sink = std::find_if(attempt_.sinks.begin(), attempt_.sinks.end(),
                                 [&epoch](const NamedSink& s) { return s.epoch == epoch; });
  if (attempt_.sink.has_value() || sink == attempt_.sinks.end()) {
    return context_.metrics.odd_events.Increment();
  }
  if (Step(FlowEvent::kStarted, absl::OkStatus()) != FlowAction::kAttach) return;
  WorkerLink& link = *context_.links[sink->worker];
  if (!link.view().ready || link.view().epoch != epoch) {
    Step(FlowEvent::kSinkLost,
         StatusOf(worker::v1::CAUSE_PEER_LOST, absl::OkStatus(), kDecodeStage));
    return;
  }
  attempt_.sink = sink->worker;
  attempt_.started = context_.executor.Now();
  attempt_.reserve_wait = Reported(started.reserve_wait_ns());
  attempt_.stream = StreamLease(link);
  link.Attach(attempt_id());
  const auto lost = attempt_.early_losses.find(sink->worker);
  if (lost != attempt_.early_losses.end()) OnGivenUp(lost->first, lost->second, absl::OkStatus());
}

void RequestFlow::OnToken(const worker::v1::Token& token, bool from_source) {
  if (ended()) {  // late: there is nothing left that it could contradict
    if (token.choice() < spec_.choices()) Step(EventOf(token, from_source), absl::OkStatus());
    return;
  }
  const absl::StatusOr<bool> fresh = CheckToken(token);
  if (!fresh.ok()) return EndContradicted(fresh.status());
  const FlowAction action = Step(EventOf(token, from_source), absl::OkStatus());
  if (action != FlowAction::kDeliver && action != FlowAction::kFinish) return;
  attempt_.prompt.Release();
  if (!from_source) attempt_.ticket.Worked();  // the handoff, if there was one
  if (*fresh) Deliver(token);
  if (action == FlowAction::kFinish) Finish(absl::OkStatus());
}

FlowEvent RequestFlow::EventOf(const worker::v1::Token& token, bool from_source) {
  const bool ends_all = delivered_.EndsAll(token);
  if (!from_source) return ends_all ? FlowEvent::kTokenEnds : FlowEvent::kToken;
  if (!attempt_.first_tokens.insert(token.choice()).second) return FlowEvent::kFirstTokenAgain;
  if (ends_all) return FlowEvent::kFirstTokenEnds;
  const bool all = attempt_.first_tokens.size() == spec_.choices();
  return all ? FlowEvent::kFirstToken : FlowEvent::kFirstTokenOfSome;
}

void RequestFlow::EndContradicted(const absl::Status& why) {
  context_.metrics.token_mismatches.Increment();
  context_.log.Error("worker contradicted what the client saw",
                     {{"request", attempt_id().ToString()}, {"what", why.ToString()}});
  End(why);
}

// Both workers of a split request send them, and every attempt does: what the client has already is
// skipped.
void RequestFlow::OnPromptLogprobs(const worker::v1::PromptLogprobs& event) {
  if (ended()) return;
  const uint64_t next = 1 + prompt_logprobs_;
  const uint64_t end = uint64_t{event.position()} + static_cast<uint64_t>(event.logprobs_size());
  if (event.position() < 1 || event.position() > next || end > 1 + PromptLogprobsWanted()) {
    return EndContradicted(ProtocolError("prompt log probabilities at position " +
                                         std::to_string(event.position()) +
                                         " where the next are at " + std::to_string(next)));
  }
  if (end <= next) return;
  std::vector<TokenLogprobs> fresh;
  for (uint64_t at = next; at < end; ++at) {
    absl::StatusOr<TokenLogprobs> one = proto::GetTokenLogprobs(
        "prompt_logprobs", event.logprobs(static_cast<int>(at - event.position())), kAnyToken);
    if (!one.ok()) return EndContradicted(ProtocolError(std::string(one.status().message())));
    fresh.push_back(*std::move(one));
  }
  prompt_logprobs_ += fresh.size();
  observer_->OnPromptLogprobs(std::move(fresh));
}

absl::Status RequestFlow::CheckLogprobs(const worker::v1::Token& token) const {
  if (prompt_logprobs_ != PromptLogprobsWanted()) {
    return ProtocolError("a token before the prompt's log probabilities");
  }
  if (token.has_logprobs() != LogprobsWanted(spec_).output.has_value()) {
    return ProtocolError("log probabilities must come with a token exactly when asked for");
  }
  const auto logprobs = proto::GetTokenLogprobs("logprobs", token.logprobs(), kAnyToken);
  return logprobs.ok() ? absl::OkStatus() : ProtocolError(std::string(logprobs.status().message()));
}

absl::StatusOr<bool> RequestFlow::CheckToken(const worker::v1::Token& token) const {
  BATON_ASSIGN_OR_RETURN(const bool fresh, delivered_.Check(token));
  const bool last = token.finish_reason() != worker::v1::FINISH_REASON_UNSPECIFIED;
  if (!attempt_.sink.has_value() && !last) {
    return ProtocolError("a token that goes on before any sink was named");
  }
  if (fresh) BATON_RETURN_IF_ERROR(CheckLogprobs(token));
  return fresh;
}

void RequestFlow::Deliver(const worker::v1::Token& token) {
  const Time now = context_.executor.Now();
  if (delivered_.tokens() == 0) NoteFirstToken(now);
  const bool is_first_step = !delivered_.went_on() && attempt_.source.has_value();
  const std::optional<Duration> gap = delivered_.Add(token, now);
  if (gap.has_value()) {
    context_.metrics.inter_token_latency.Observe(ToSeconds(*gap));
    if (is_first_step) summary_.timings.first_decode_step = *gap;
  }
  context_.metrics.generation_tokens.Increment();
  TokenEvent event;
  event.choice = token.choice();
  event.position = token.position();
  event.token = token.token();
  event.visible_bytes = token.visible_bytes();
  event.finish = FinishOf(token.finish_reason());
  if (token.has_logprobs()) {
    event.logprobs = *proto::GetTokenLogprobs("logprobs", token.logprobs(), kAnyToken);
  }
  observer_->OnToken(event);
  host_.TokenDelivered(*this);
}

// The parts add up to the whole: what no report names is time in the worker's queue.
void RequestFlow::NoteFirstToken(Time now) {
  RequestTimings& t = summary_.timings;
  t.time_to_first_token = now - spec_.arrived;
  const Time answered = attempt_.answered.value_or(attempt_.submitted);
  const Time started = std::max(attempt_.started.value_or(answered), answered);
  t.route = answered - attempt_.submitted;
  t.reserve_wait = std::min(attempt_.reserve_wait, started - answered);
  t.prefill = now - started;
  t.queue = t.time_to_first_token - t.route - t.reserve_wait - t.prefill;
  context_.metrics.time_to_first_token.Observe(ToSeconds(t.time_to_first_token));
}

// Said by who computes the prompt, also in an attempt after one that delivered tokens.
void RequestFlow::OnCachedPrompt(uint32_t tokens, bool from_source) {
  const bool computes = from_source || !attempt_.source.has_value();
  if (!computes || tokens >= spec_.prompt.size()) return context_.metrics.odd_events.Increment();
  summary_.cached_tokens = tokens;
}

void RequestFlow::OnHandedOff(const worker::v1::HandedOff& handed_off) {
  summary_.timings.handoff = Reported(handed_off.handoff_ns());
  handed_off_ = true;
  attempt_.ticket.Worked();
  if (handed_off.tokens() > 0) {
    host_.LearnKvBytes(static_cast<double>(handed_off.bytes()) / handed_off.tokens());
  }
  if (state_ == RequestState::kFinished) TellEnd(absl::OkStatus());
}

void RequestFlow::OnGivenUp(size_t worker, worker::v1::Cause cause, const absl::Status& status) {
  const bool source = FromSource(worker);
  const GiveUp verdict = Classify(cause, status.code());
  const char* const stage = verdict == GiveUp::kLost ? kHandoffStage
                            : source                 ? kPrefillStage
                                                     : kDecodeStage;
  const absl::Status why = StatusOf(cause, status, stage);
  if (verdict == GiveUp::kTryAgain) avoid_ = {attempt_.sink.value_or(worker)};
  if (verdict == GiveUp::kLost) NoteLostHandoff();
  attempt_.preempted = cause == worker::v1::CAUSE_PREEMPTED;
  Step(router::EventOf(verdict, source), why);
}

void RequestFlow::NoteLostHandoff() {
  if (!attempt_.source.has_value() || !attempt_.sink.has_value()) return;
  const WorkerView& sink = context_.links[*attempt_.sink]->view();
  const bool same = std::any_of(attempt_.sinks.begin(), attempt_.sinks.end(),
                                [&sink](const NamedSink& s) { return s.epoch == sink.epoch; });
  if (sink.ready && same) attempt_.ticket.Failed();
}

// Clients hear which stage it was. Which worker, and how, stands in the log: it names addresses.
void RequestFlow::OnWorkerLost(size_t worker) {
  if (ended() || !attempt_.live) return;
  const absl::Status status = ErrorWithReason(
      absl::StatusCode::kUnavailable,
      std::string(FromSource(worker) ? kPrefillStage : kDecodeStage) + ": the worker was lost",
      kReasonWorkerLost);
  if (FromSource(worker)) {
    avoid_ = {worker};
    Step(FlowEvent::kSourceLost, status);
  } else if (FromSink(worker)) {
    avoid_ = {worker};
    Step(FlowEvent::kSinkLost, status);
  }
}

void RequestFlow::End(const absl::Status& why) { Step(FlowEvent::kEnd, why); }

FlowAction RequestFlow::Step(FlowEvent event, const absl::Status& why) {
  const Transition transition = Next(state_, event);
  if (context_.options.on_transition) context_.options.on_transition(state_, event);
  // The last token is delivered before the end is told, by OnToken.
  state_ = transition.next;
  switch (transition.action) {
    case FlowAction::kRetry:
      Retry(why);
      break;
    case FlowAction::kFail:
      Finish(why);
      break;
    case FlowAction::kOdd:
      context_.metrics.odd_events.Increment();
      break;
    default:
      break;
  }
  return transition.action;
}

void RequestFlow::Retry(const absl::Status& why) {
  CancelAttempt();
  const Time now = context_.executor.Now();  // a full cluster is waited for
  const Time when = attempt_.preempted               ? now
                    : absl::IsResourceExhausted(why) ? retry_.AfterNoRoom(attempt_.submitted, now)
                                                     : retry_.AfterFailure(now);
  if (retry_.failures() >= context_.options.max_attempts) {
    state_ = RequestState::kFailed;
    return Finish(WithRetryInfo(why, context_.options.retry_max));
  }
  context_.log.Info("placing again", {{"request", attempt_id().ToString()},
                                      {"id", spec_.request_id},
                                      {"why", std::string(why.message())}});
  host_.Requeue(*this, when);
}

void RequestFlow::CancelAttempt() {
  if (!attempt_.live) return;
  attempt_.live = false;
  attempt_.prompt.Release();
  attempt_.stream.Release();
  attempt_.ticket.GiveBack();
  const auto cancel = [this](size_t worker, const Epoch& epoch) {
    WorkerLink& link = *context_.links[worker];
    if (link.view().epoch == epoch) link.Cancel(attempt_id());
  };
  if (attempt_.source.has_value()) cancel(*attempt_.source, attempt_.source_epoch);
  for (const NamedSink& sink : attempt_.sinks) cancel(sink.worker, sink.epoch);
}

void RequestFlow::Finish(const absl::Status& status) {
  deadline_.Cancel();
  attempt_.prompt.Release();
  attempt_.stream.Release();
  if (!status.ok() || !AwaitsHandoffReport()) return TellEnd(status);
  // The client has every token already.
  report_timer_ = context_.executor.PostAfter(context_.options.handoff_report_patience,
                                              [this] { TellEnd(absl::OkStatus()); });
}

void RequestFlow::TellEnd(const absl::Status& status) {
  report_timer_.Cancel();
  summary_.completion_tokens = static_cast<uint32_t>(delivered_.tokens());
  RequestTimings& t = summary_.timings;
  t.total = context_.executor.Now() - spec_.arrived;
  t.first_decode_step = std::max(t.first_decode_step - t.handoff, Duration{0});
  if (attempt_.source.has_value()) {
    summary_.prefill_worker = context_.links[*attempt_.source]->view().name;
  }
  if (attempt_.sink.has_value() && (!attempt_.source.has_value() || delivered_.went_on())) {
    summary_.decode_worker = context_.links[*attempt_.sink]->view().name;
  }
  if (status.ok()) {
    // Whoever sampled the last token has let go of everything.
    attempt_.live = false;
    attempt_.ticket.GiveBack();
  } else {
    CancelAttempt();
  }
  Account(status);
  std::exchange(observer_, nullptr)->OnFinished(status, summary_);
  host_.Ended(*this);
}

void RequestFlow::Account(const absl::Status& status) const {
  CoreMetrics& metrics = context_.metrics;
  metrics.requests.With({absl::StatusCodeToString(status.code())}).Increment();
  const RequestTimings& t = summary_.timings;
  context_.log.Info("request ended", {{"request", attempt_id().ToString()},
                                      {"id", spec_.request_id},
                                      {"code", absl::StatusCodeToString(status.code())},
                                      {"reason", ReasonOf(status)},
                                      {"prompt_tokens", spec_.prompt.size()},
                                      {"cached_tokens", summary_.cached_tokens},
                                      {"choices", spec_.choices()},
                                      {"tokens", delivered_.tokens()},
                                      {"prefill", summary_.prefill_worker},
                                      {"decode", summary_.decode_worker},
                                      {"ttft_s", ToSeconds(t.time_to_first_token)},
                                      {"total_s", ToSeconds(t.total)}});
  if (!status.ok()) return;
  const auto stage = [&metrics](const char* name, Duration time) {
    metrics.stage_seconds.With({name}).Observe(ToSeconds(time));
  };
  stage("queue", t.queue);
  stage("route", t.route);
  stage("reserve_wait", t.reserve_wait);
  stage("prefill", t.prefill);
  if (!attempt_.source.has_value()) return;
  stage("handoff", t.handoff);
  stage("first_decode_step", t.first_decode_step);
}

}  // namespace baton::router
