#include "router/generate_service.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <optional>
#include <utility>

#include "baton/v1/inference.grpc.pb.h"
#include "common/silence_watch.h"
#include "router/client_buffer.h"
#include "router/error_reasons.h"
#include "router/status_details.h"

namespace baton::router {
namespace {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      std::string(status.message()), SerializedRpcStatus(status));
}

std::optional<Duration> Remaining(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return std::nullopt;
  return std::chrono::duration_cast<Duration>(deadline - std::chrono::system_clock::now());
}

absl::Status ClientGone() {
  return ErrorWithReason(absl::StatusCode::kCancelled, "the client cancelled or went away",
                         kReasonCancelled);
}

absl::Status TooSlow(const std::string& how) {
  return ErrorWithReason(absl::StatusCode::kResourceExhausted,
                         "the client reads too slowly: " + how, kReasonSlowClient);
}

// What both kinds of call share. `Base` is the gRPC reactor; the object holds itself until gRPC is
// done with it. Everything but OnCancel and OnDone runs on the executor.
template <typename Base>
class Call : public Base, public ResponseSink, public std::enable_shared_from_this<Call<Base>> {
 public:
  Call(Executor& executor, Frontend& frontend) : executor_(executor), frontend_(frontend) {}

  // gRPC thread. `generation` lives until OnDone.
  void Start(const grpc::CallbackServerContext& context, const v1::Generation& generation) {
    self_ = this->shared_from_this();
    executor_.Post(
        [self = self_, &generation, arrived = executor_.Now(), timeout = Remaining(context)] {
          self->number_ = self->frontend_.Generate(generation, arrived, timeout, self);
        });
  }

  void OnCancel() override {
    executor_.Post([self = this->shared_from_this()] { self->Cancel(ClientGone()); });
  }

  void OnDone() override {
    executor_.Post([self = std::move(self_)] {});
  }

 protected:
  void Cancel(const absl::Status& why) { frontend_.Cancel(number_, why); }

  Executor& executor_;

 private:
  Frontend& frontend_;
  uint64_t number_ = 0;
  std::shared_ptr<Call> self_;
};

absl::Status AnswerTooLarge(size_t most) {
  return ErrorWithReason(absl::StatusCode::kResourceExhausted,
                         "the answer is larger than " + std::to_string(most) +
                             " bytes; GenerateStream has no such limit",
                         kReasonAnswerTooLarge);
}

class UnaryCall final : public Call<grpc::ServerUnaryReactor> {
 public:
  UnaryCall(Executor& executor, Frontend& frontend, size_t max_bytes,
            v1::GenerateResponse& response)
      : Call(executor, frontend), max_bytes_(max_bytes), response_(response) {}

  bool streams() const override { return false; }

  void Add(v1::GenerateStreamResponse part) override {
    // Never less than what it becomes a part of.
    bytes_ += part.ByteSizeLong();
    if (too_large()) return Cancel(AnswerTooLarge(max_bytes_));
    if (part.has_started()) {
      v1::Started& started = *part.mutable_started();
      response_.set_request_id(started.request_id());
      response_.set_model(started.model());
      response_.set_seed(started.seed());
      response_.mutable_prompt_token_ids()->Swap(started.mutable_prompt_token_ids());
    } else if (part.has_delta()) {
      v1::Choice& choice = ChoiceAt(part.delta().choice());
      choice.mutable_text()->append(part.delta().text());
      choice.mutable_token_ids()->MergeFrom(part.delta().token_ids());
      choice.mutable_logprobs()->MergeFrom(part.delta().logprobs());
    } else if (part.has_prompt_logprobs()) {
      response_.mutable_prompt_logprobs()->MergeFrom(part.prompt_logprobs().logprobs());
    } else if (part.has_choice_end()) {
      ChoiceAt(part.choice_end().choice()).set_finish_reason(part.choice_end().finish_reason());
    } else {
      response_.mutable_usage()->Swap(part.mutable_completed()->mutable_usage());
      response_.mutable_timings()->Swap(part.mutable_completed()->mutable_timings());
      response_.mutable_workers()->Swap(part.mutable_completed()->mutable_workers());
    }
  }

  void End(const absl::Status& status) override {
    Finish(ToGrpc(too_large() ? AnswerTooLarge(max_bytes_) : status));
  }

 private:
  bool too_large() const { return bytes_ > max_bytes_; }

  v1::Choice& ChoiceAt(uint32_t index) {
    while (static_cast<uint32_t>(response_.choices_size()) <= index) {
      const uint32_t next = static_cast<uint32_t>(response_.choices_size());
      response_.add_choices()->set_index(next);
    }
    return *response_.mutable_choices(static_cast<int>(index));
  }

  const size_t max_bytes_;
  size_t bytes_ = 0;
  v1::GenerateResponse& response_;
};

class StreamCall final : public Call<grpc::ServerWriteReactor<v1::GenerateStreamResponse>> {
 public:
  StreamCall(Executor& executor, Frontend& frontend, const GenerateServiceOptions& options)
      : Call(executor, frontend), options_(options), buffer_(options.client_buffer_bytes) {}

  bool streams() const override { return true; }

  void Add(v1::GenerateStreamResponse response) override {
    if (too_slow_) return;
    if (!buffer_.Add(std::move(response))) {
      return GiveUp(TooSlow(std::to_string(options_.client_buffer_bytes) + " bytes wait for it"));
    }
    WriteNext();
  }

  void End(const absl::Status& status) override {
    end_ = too_slow_ ? slow_status_ : status;
    WriteNext();
  }

  void OnWriteDone(bool /*ok*/) override {
    // Not OK: the call is over, OnCancel says so.
    executor_.Post([self = std::static_pointer_cast<StreamCall>(shared_from_this())] {
      self->writing_ = false;
      self->slow_.reset();
      self->WriteNext();
    });
  }

 private:
  void WriteNext() {
    if (finished_) return;
    if (!writing_ && !too_slow_) {
      if (auto next = buffer_.Take()) {
        writing_ = true;
        message_ = *std::move(next);
        slow_.emplace(executor_, options_.slow_client_timeout, [this] {
          GiveUp(TooSlow("it took nothing for " +
                         std::to_string(ToSeconds(options_.slow_client_timeout)) + " s"));
        });
        return StartWrite(&message_);
      }
    }
    // A client that does not read gets its status behind the message it does not take.
    if (!end_.has_value() || (writing_ && !too_slow_)) return;
    finished_ = true;
    slow_.reset();
    Finish(ToGrpc(*end_));
  }

  void GiveUp(absl::Status why) {
    too_slow_ = true;
    slow_status_ = why;
    buffer_.Clear();  // the call itself stays until the client reads or goes
    if (!end_.has_value()) return Cancel(why);  // which ends it with that status
    // The request has ended before its reader took all of it: what is lost must not end with OK.
    end_ = std::move(why);
    WriteNext();
  }

  const GenerateServiceOptions options_;
  ClientBuffer buffer_;
  v1::GenerateStreamResponse message_;  // being written
  bool writing_ = false;
  bool too_slow_ = false;
  bool finished_ = false;
  absl::Status slow_status_;
  std::optional<absl::Status> end_;
  std::optional<SilenceWatch> slow_;  // while writing_
};

class GenerateService final : public v1::InferenceService::CallbackService {
 public:
  GenerateService(const GenerateServiceOptions& options, Executor& executor, Frontend& frontend)
      : options_(options), executor_(executor), frontend_(frontend) {}

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const v1::GenerateRequest* request,
                                     v1::GenerateResponse* response) override {
    auto call =
        std::make_shared<UnaryCall>(executor_, frontend_, options_.max_answer_bytes, *response);
    call->Start(*context, request->generation());
    return call.get();
  }

  grpc::ServerWriteReactor<v1::GenerateStreamResponse>* GenerateStream(
      grpc::CallbackServerContext* context, const v1::GenerateStreamRequest* request) override {
    auto call = std::make_shared<StreamCall>(executor_, frontend_, options_);
    call->Start(*context, request->generation());
    return call.get();
  }

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* /*request*/,
                                       v1::ListModelsResponse* response) override {
    auto* reactor = context->DefaultReactor();
    executor_.Post([this, reactor, response] {
      *response = frontend_.ListModels();
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override {
    auto* reactor = context->DefaultReactor();
    executor_.Post([this, reactor, request, response] {
      frontend_.Tokenize(*request, [reactor, response](auto result) {
        if (result.ok()) *response = *std::move(result);
        reactor->Finish(ToGrpc(result.status()));
      });
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override {
    auto* reactor = context->DefaultReactor();
    executor_.Post([this, reactor, request, response] {
      frontend_.Detokenize(*request, [reactor, response](auto result) {
        if (result.ok()) *response = *std::move(result);
        reactor->Finish(ToGrpc(result.status()));
      });
    });
    return reactor;
  }

 private:
  const GenerateServiceOptions options_;
  Executor& executor_;
  Frontend& frontend_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeGenerateService(const GenerateServiceOptions& options,
                                                   Executor& executor, Frontend& frontend) {
  return std::make_unique<GenerateService>(options, executor, frontend);
}

}  // namespace baton::router
