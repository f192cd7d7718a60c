#include "router/frontend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "router/best_of.h"
#include "router/error_reasons.h"
#include "router/prompt_names.h"
#include "router/status_details.h"
#include "text/detokenizer.h"

namespace baton::router {
namespace {

v1::FinishReason ToProto(Finish finish) {
  return finish == Finish::kStop ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH;
}

void Fill(const RequestTimings& from, v1::Timings& to) {
  to.set_queue(ToSeconds(from.queue));
  to.set_route(ToSeconds(from.route));
  to.set_reserve_wait(ToSeconds(from.reserve_wait));
  to.set_prefill(ToSeconds(from.prefill));
  to.set_handoff(ToSeconds(from.handoff));
  to.set_first_decode_step(ToSeconds(from.first_decode_step));
  to.set_total(ToSeconds(from.total));
  to.set_time_to_first_token(ToSeconds(from.time_to_first_token));
}

// Of the prompt, before it is tokenized.
uint64_t LeastTokens(const PromptInput& input, const Vocab& vocab) {
  uint64_t bytes = 0, ids = 0;
  for (const PromptPart& part : input.parts) {
    bytes += part.text.size();
    ids += part.ids.size();
  }
  return std::max<uint64_t>(ids + bytes / std::max<uint64_t>(vocab.max_token_bytes(), 1), 1);
}

void Fill(TokenId token, const TokenLogprobs& from, v1::TokenLogprob& to) {
  to.set_token_id(token);
  to.set_logprob(from.logprob);
  for (const TopLogprob& top : from.top) {
    v1::TopLogprob& added = *to.add_top();
    added.set_token_id(top.token);
    added.set_logprob(top.logprob);
  }
}

absl::Status CheckRanking(const ValidGeneration& valid, bool streams) {
  if (!streams || valid.best_of == valid.n) return absl::OkStatus();
  return BadField("generation.best_of",
                  "is " + std::to_string(valid.best_of) + "; a stream allows only n, which is " +
                      std::to_string(valid.n) +
                      ": which choices are the best is known at the end, so it could show nothing "
                      "before (use Generate)");
}

absl::Status PoolFull() {
  return WithRetryInfo(ErrorWithReason(absl::StatusCode::kResourceExhausted,
                                       "too many prompts wait to be tokenized", kReasonQueueFull),
                       std::chrono::seconds(1));
}

}  // namespace

// Turns the core's tokens into messages with text.
class Frontend::Observer : public RequestObserver {
 public:
  Observer(Frontend& frontend, uint64_t call, const RequestSpec& spec, v1::Started started)
      : frontend_(frontend),
        call_(call),
        sink_(frontend.calls_.at(call).sink),
        started_(std::move(started)),
        detokenizers_(spec.choices(), Detokenizer(frontend.context_.model.vocab())) {
    if (spec.ranked()) best_.emplace(spec.choices(), spec.n, spec.logprobs.output.has_value());
  }

  void OnAdmitted() override {
    prompt_.assign(started_.prompt_token_ids().begin(), started_.prompt_token_ids().end());
    v1::GenerateStreamResponse response;
    *response.mutable_started() = std::move(started_);
    sink_->Add(std::move(response));
  }

  void OnPromptLogprobs(std::vector<TokenLogprobs> logprobs) override {
    v1::GenerateStreamResponse response;
    for (const TokenLogprobs& one : logprobs) {
      Fill(prompt_.at(++scored_), one, *response.mutable_prompt_logprobs()->add_logprobs());
    }
    sink_->Add(std::move(response));
  }

  void OnToken(const TokenEvent& event) override {
    const bool last = event.finish != Finish::kNone;
    const absl::StatusOr<std::string> text = TextOf(event, last);
    if (!text.ok()) return Break(text.status());
    v1::Delta delta;
    delta.set_choice(event.choice);
    delta.set_text(*text);
    delta.add_token_ids(event.token);
    if (event.logprobs.has_value()) Fill(event.token, *event.logprobs, *delta.add_logprobs());
    v1::ChoiceEnd end;
    end.set_choice(event.choice);
    end.set_finish_reason(ToProto(event.finish));
    if (best_.has_value()) {
      best_->Add(std::move(delta));
      if (last) best_->End(end);
    } else {
      Send(std::move(delta));
      if (last) Send(end);
    }
  }

  void OnFinished(const absl::Status& status, const RequestSummary& summary) override {
    const absl::Status end = broken_.ok() ? status : broken_;
    if (end.ok()) {
      if (best_.has_value()) SendBest();
      v1::GenerateStreamResponse response;
      v1::Completed& completed = *response.mutable_completed();
      completed.mutable_usage()->set_prompt_tokens(static_cast<uint32_t>(prompt_.size()));
      completed.mutable_usage()->set_completion_tokens(summary.completion_tokens);
      completed.mutable_usage()->set_cached_prompt_tokens(summary.cached_tokens);
      Fill(summary.timings, *completed.mutable_timings());
      completed.mutable_workers()->set_prefill(summary.prefill_worker);
      completed.mutable_workers()->set_decode(summary.decode_worker);
      sink_->Add(std::move(response));
    }
    frontend_.End(call_, end);
  }

 private:
  absl::StatusOr<std::string> TextOf(const TokenEvent& event, bool last) {
    Detokenizer& detokenizer = detokenizers_.at(event.choice);
    BATON_RETURN_IF_ERROR(detokenizer.Add(event.token));
    return last ? detokenizer.ShowLast(event.visible_bytes) : detokenizer.Show(event.visible_bytes);
  }

  void Send(v1::Delta delta) {
    v1::GenerateStreamResponse response;
    *response.mutable_delta() = std::move(delta);
    sink_->Add(std::move(response));
  }
  void Send(const v1::ChoiceEnd& end) {
    v1::GenerateStreamResponse response;
    *response.mutable_choice_end() = end;
    sink_->Add(std::move(response));
  }

  // Each choice as one delta and its end.
  void SendBest() {
    for (v1::Choice& choice : best_->Take()) {
      v1::Delta delta;
      delta.set_choice(choice.index());
      delta.set_text(std::move(*choice.mutable_text()));
      delta.mutable_token_ids()->Swap(choice.mutable_token_ids());
      delta.mutable_logprobs()->Swap(choice.mutable_logprobs());
      Send(std::move(delta));
      v1::ChoiceEnd end;
      end.set_choice(choice.index());
      end.set_finish_reason(choice.finish_reason());
      Send(end);
    }
  }

  // A worker sent what cannot be shown.
  void Break(const absl::Status& why) {
    if (!broken_.ok()) return;
    broken_ =
        ErrorWithReason(absl::StatusCode::kInternal, std::string(why.message()), kReasonProtocol);
    frontend_.Cancel(call_, broken_);
  }

  Frontend& frontend_;
  const uint64_t call_;
  const std::shared_ptr<ResponseSink> sink_;
  v1::Started started_;
  std::vector<Detokenizer> detokenizers_;  // of each choice
  std::optional<BestOf> best_;             // more are generated than returned
  std::vector<TokenId> prompt_;
  size_t scored_ = 0;  // of prompt_[1..]
  absl::Status broken_;
};

ValidationLimits Frontend::Limits() const {
  const uint32_t served = context_.core.ContextLength();
  return {served > 0 ? served : context_.model.context_length()};
}

Frontend::Encoding Frontend::Encode(PromptInput input) const {
  const int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(context_.wall_clock.SinceEpoch()).count();
  const ModelText& model = context_.model;
  return [&model, now, input = std::move(input)] { return model.Encode(input, now); };
}

uint64_t Frontend::Generate(const v1::Generation& generation, Time arrived,
                            std::optional<Duration> timeout, std::shared_ptr<ResponseSink> sink) {
  const uint64_t call = ++last_call_;
  calls_[call].sink = std::move(sink);
  absl::StatusOr<ValidGeneration> valid =
      shut_down_.ok() ? Validate(generation, context_.model, Limits()) : shut_down_;
  if (!valid.ok()) {
    End(call, valid.status());
    return call;
  }
  absl::Status taken = CheckRanking(*valid, calls_[call].sink->streams());
  // A full router does not spend its time on tokenizing what it refuses.
  if (taken.ok())
    taken = context_.core.CheckRoom(LeastTokens(valid->input, context_.model.vocab()));
  if (!taken.ok()) {
    End(call, taken);
    return call;
  }
  if (!EncodeAndSubmit(call, SpecOf(*valid, call, arrived, timeout), std::move(valid->input))) {
    End(call, PoolFull());
  }
  return call;
}

bool Frontend::EncodeAndSubmit(uint64_t call, RequestSpec spec, PromptInput input) {
  using Result = absl::StatusOr<RequestSpec>;
  return Offload<Result>(
      context_.pool, context_.executor,
      [encode = Encode(std::move(input)), namings = context_.core.BlockNamings(),
       without_prompt = std::move(spec)]() -> Result {
        RequestSpec whole = without_prompt;
        BATON_ASSIGN_OR_RETURN(whole.prompt, encode());
        NameBlocks(namings, whole);
        return whole;
      },
      [this, call](Result encoded) { Submit(call, std::move(encoded)); });
}

// All but the prompt.
RequestSpec Frontend::SpecOf(const ValidGeneration& valid, uint64_t call, Time arrived,
                             std::optional<Duration> timeout) {
  RequestSpec spec;
  spec.request_id = valid.request_id;
  spec.tenant = valid.tenant;
  spec.cache_salt = valid.cache_salt;
  spec.bypass_cache = valid.bypass_cache;
  spec.priority = valid.priority;
  spec.sampling = valid.sampling;
  spec.sampling.seed = valid.seed.has_value() ? *valid.seed : context_.random.Next64();
  spec.stop = valid.stop;
  spec.logprobs = valid.logprobs;
  spec.n = valid.n;
  spec.best_of = valid.best_of;
  spec.streamed = calls_.at(call).sink->streams();
  spec.arrived = arrived;
  if (timeout.has_value()) spec.deadline = arrived + *timeout;
  return spec;
}

void Frontend::Submit(uint64_t call, absl::StatusOr<RequestSpec> encoded) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;  // cancelled meanwhile
  if (!encoded.ok()) return End(call, encoded.status());
  RequestSpec& spec = *encoded;
  v1::Started started;
  started.set_request_id(spec.request_id);
  started.set_model(context_.model.name());
  started.set_seed(spec.sampling.seed);
  started.mutable_prompt_token_ids()->Add(spec.prompt.begin(), spec.prompt.end());
  auto observer = std::make_unique<Observer>(*this, call, spec, std::move(started));
  found->second.request = context_.core.Generate(std::move(spec), std::move(observer));
}

void Frontend::Cancel(uint64_t call, const absl::Status& why) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  if (!found->second.request.has_value()) return End(call, why);
  context_.core.Cancel(*found->second.request, why);
}

void Frontend::Shutdown(const absl::Status& why) {
  shut_down_ = why;
  std::vector<uint64_t> live;
  for (const auto& [number, call] : calls_) live.push_back(number);
  for (const uint64_t number : live) Cancel(number, why);
}

void Frontend::End(uint64_t call, const absl::Status& status) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  const std::shared_ptr<ResponseSink> sink = std::move(found->second.sink);
  calls_.erase(found);
  sink->End(status);
}

void Frontend::Tokenize(const v1::TokenizeRequest& request,
                        std::function<void(absl::StatusOr<v1::TokenizeResponse>)> done) {
  v1::Generation generation;
  if (request.has_chat()) *generation.mutable_chat() = request.chat();
  if (request.has_prompt()) *generation.mutable_prompt() = request.prompt();
  const absl::Status name = ValidateModelName(request.model(), "model", context_.model);
  if (!name.ok()) return done(name);
  absl::StatusOr<PromptInput> input = ValidateInput(generation, "", context_.model, Limits());
  if (!input.ok()) return done(input.status());
  const auto reply = [done](absl::StatusOr<std::vector<TokenId>> ids) {
    if (!ids.ok()) return done(ids.status());
    v1::TokenizeResponse response;
    response.mutable_token_ids()->Add(ids->begin(), ids->end());
    done(std::move(response));
  };
  using Result = absl::StatusOr<std::vector<TokenId>>;
  if (!Offload<Result>(context_.pool, context_.executor, Encode(*std::move(input)), reply)) {
    done(PoolFull());
  }
}

void Frontend::Detokenize(const v1::DetokenizeRequest& request,
                          std::function<void(absl::StatusOr<v1::DetokenizeResponse>)> done) {
  using Result = absl::StatusOr<v1::DetokenizeResponse>;
  const absl::Status name = ValidateModelName(request.model(), "model", context_.model);
  if (!name.ok()) return done(name);
  const Vocab& vocab = context_.model.vocab();
  const std::vector<TokenId> ids(request.token_ids().begin(), request.token_ids().end());
  const auto work = [&vocab, ids]() -> Result {
    const auto text = DecodeTokens(vocab, ids);
    if (!text.ok()) return BadField("token_ids", std::string(text.status().message()));
    v1::DetokenizeResponse response;
    response.set_text(*text);
    return response;
  };
  if (!Offload<Result>(context_.pool, context_.executor, work, done)) done(PoolFull());
}

v1::ListModelsResponse Frontend::ListModels() const {
  v1::ListModelsResponse response;
  if (!context_.core.CanServe()) return response;
  v1::Model& model = *response.add_models();
  model.set_name(context_.model.name());
  model.set_context_length(context_.core.ContextLength());
  model.set_vocabulary_size(static_cast<uint32_t>(context_.model.vocab().size()));
  model.set_chat(context_.model.can_chat());
  return response;
}

}  // namespace baton::router
