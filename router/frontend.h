// Between the public API's messages and the core's token ids: validation, tokenizing and naming KV
// blocks on a pool, text of the answer. No gRPC.
#ifndef BATON_ROUTER_FRONTEND_H_
#define BATON_ROUTER_FRONTEND_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "common/clock.h"
#include "common/executor.h"
#include "common/random.h"
#include "common/worker_pool.h"
#include "router/model_text.h"
#include "router/router_core.h"
#include "router/validation.h"

namespace baton::router {

// Where one call's answer goes. Called on the executor.
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  // Whether the client sees each part as it comes.
  virtual bool streams() const = 0;
  virtual void Add(v1::GenerateStreamResponse response) = 0;
  // Exactly once, last. OK: a Completed came before.
  virtual void End(const absl::Status& status) = 0;
};

// Owner thread: the executor's. Everything passed to the constructor must outlive it.
class Frontend {
 public:
  struct Context {
    const ModelText& model;
    RouterCore& core;
    Executor& executor;
    Offloader& pool;
    Random& random;
    const WallClock& wall_clock;
  };

  explicit Frontend(const Context& context) : context_(context) {}
  Frontend(const Frontend&) = delete;
  Frontend& operator=(const Frontend&) = delete;

  // The call's number. `arrived`: when the call came in; `timeout` counts from there.
  uint64_t Generate(const v1::Generation& generation, Time arrived, std::optional<Duration> timeout,
                    std::shared_ptr<ResponseSink> sink);
  // Ends the call with `why` unless it has ended.
  void Cancel(uint64_t call, const absl::Status& why);
  // Ends every call and refuses new ones.
  void Shutdown(const absl::Status& why);

  void Tokenize(const v1::TokenizeRequest& request,
                std::function<void(absl::StatusOr<v1::TokenizeResponse>)> done);
  void Detokenize(const v1::DetokenizeRequest& request,
                  std::function<void(absl::StatusOr<v1::DetokenizeResponse>)> done);
  v1::ListModelsResponse ListModels() const;

 private:
  class Observer;
  struct Call {
    std::shared_ptr<ResponseSink> sink;
    std::optional<uint64_t> request;  // absent: still tokenizing
  };

  ValidationLimits Limits() const;
  // For the pool.
  using Encoding = std::function<absl::StatusOr<std::vector<TokenId>>()>;
  Encoding Encode(PromptInput input) const;
  RequestSpec SpecOf(const ValidGeneration& valid, uint64_t call, Time arrived,
                     std::optional<Duration> timeout);
  bool EncodeAndSubmit(uint64_t call, RequestSpec spec, PromptInput input);
  void Submit(uint64_t call, absl::StatusOr<RequestSpec> encoded);
  void End(uint64_t call, const absl::Status& status);

  const Context context_;
  std::map<uint64_t, Call> calls_;
  uint64_t last_call_ = 0;
  absl::Status shut_down_;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_FRONTEND_H_
