#include "client/bench/load_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "client/rpc.h"
#include "common/clock.h"

namespace baton::client {

// Owns itself from its start to OnDone.
class LoadClient::Stream : public grpc::ClientReadReactor<v1::GenerateStreamResponse> {
 public:
  Stream(LoadClient& owner, RequestRecord record, v1::GenerateStreamRequest request,
         std::function<void(RequestRecord)> done)
      : owner_(owner),
        record_(std::move(record)),
        request_(std::move(request)),
        done_(std::move(done)) {}

  void Start(v1::InferenceService::Stub& stub, const std::optional<Duration>& timeout) {
    if (timeout.has_value()) {
      context_.set_deadline(std::chrono::system_clock::now() +
                            std::chrono::duration_cast<std::chrono::microseconds>(*timeout));
    }
    record_.sent = SteadyNow();
    stub.async()->GenerateStream(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (response_.has_delta()) Take(static_cast<uint32_t>(response_.delta().token_ids_size()));
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    record_.ended = SteadyNow();
    if (!status.ok()) {
      record_.error = CodeName(status.error_code());
    } else if (record_.tokens != record_.wanted_tokens) {
      record_.error = "SHORT_ANSWER";
    }
    owner_.Forget(this);
    const auto done = std::move(done_);
    RequestRecord record = std::move(record_);
    delete this;
    done(std::move(record));
  }

 private:
  void Take(uint32_t tokens) {
    if (tokens == 0) return;
    const Time now = SteadyNow();
    uint32_t gaps = tokens;
    if (!record_.first_token.has_value()) {
      record_.first_token = now;
      // Tokens that came with the first one have no time of their own.
      gaps = 0;
    }
    const double gap = ToSeconds(now - last_) / tokens;
    record_.gaps.insert(record_.gaps.end(), gaps, static_cast<float>(gap));
    record_.tokens += tokens;
    last_ = now;
    owner_.tokens_.fetch_add(tokens, std::memory_order_relaxed);
  }

  LoadClient& owner_;
  RequestRecord record_;
  const v1::GenerateStreamRequest request_;
  std::function<void(RequestRecord)> done_;
  grpc::ClientContext context_;
  v1::GenerateStreamResponse response_;
  Time last_;
};

LoadClient::LoadClient(const std::string& target, size_t connections,
                       std::optional<Duration> timeout)
    : timeout_(timeout) {
  for (size_t i = 0; i < connections; ++i) stubs_.push_back(MakeStub(target));
}

LoadClient::~LoadClient() = default;

absl::StatusOr<v1::Model> LoadClient::Connect(const std::string& name) {
  v1::ListModelsResponse response;
  for (const auto& stub : stubs_) {
    grpc::ClientContext context;
    response.Clear();
    const grpc::Status status = stub->ListModels(&context, {}, &response);
    if (!status.ok()) return absl::UnavailableError(ErrorLine(status));
  }
  if (response.models().empty()) return absl::UnavailableError("no model is served now");
  for (const v1::Model& model : response.models()) {
    if (model.name() == name || name.empty()) return model;
  }
  return absl::NotFoundError("--model is " + name + "; not served");
}

void LoadClient::Start(RequestRecord record, v1::GenerateStreamRequest request,
                       std::function<void(RequestRecord)> done) {
  auto* stream = new Stream(*this, std::move(record), std::move(request), std::move(done));
  v1::InferenceService::Stub* stub = nullptr;
  {
    MutexLock lock(mutex_);
    streams_.insert(stream);
    stub = stubs_[next_stub_++ % stubs_.size()].get();
  }
  stream->Start(*stub, timeout_);
}

void LoadClient::CancelAll() {
  MutexLock lock(mutex_);
  for (Stream* stream : streams_) stream->Cancel();
}

void LoadClient::Forget(Stream* stream) {
  MutexLock lock(mutex_);
  streams_.erase(stream);
}

}  // namespace baton::client
