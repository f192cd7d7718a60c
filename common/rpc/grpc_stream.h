// baton::Stream over gRPC's callback API, server side and client side. gRPC's threads only move
// messages; everything a listener sees happens on the core's executor.
#ifndef BATON_COMMON_RPC_GRPC_STREAM_H_
#define BATON_COMMON_RPC_GRPC_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "common/executor.h"
#include "common/mutex.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/stream_reactor.h"
#include "common/stream.h"

namespace baton::rpc {

namespace internal {

template <typename Out, typename In>
class ServerReactor final : public StreamReactor<grpc::ServerBidiReactor<In, Out>, Out, In> {
  using Base = StreamReactor<grpc::ServerBidiReactor<In, Out>, Out, In>;

 public:
  ServerReactor(grpc::CallbackServerContext* context, Executor& executor)
      : Base(executor), context_(context) {}

  void HoldSelf() { self_ = this->shared_from_this(); }

  void OnDone() override { self_.reset(); }

  // Also when no read is waiting to be told.
  void OnCancel() override { End(true); }

 private:
  void OnReadsEnded() override { End(context_->IsCancelled()); }

  void End(bool cancelled) {
    {
      MutexLock lock(this->mutex_);
      this->closing_ = true;
      if (cancelled) this->DropQueued();
      this->WriteNext();
    }
    this->PostClosed(cancelled ? absl::CancelledError("the peer is gone") : absl::OkStatus());
  }

  void EndWrites() override BATON_REQUIRES(this->mutex_) {
    this->ended_ = true;
    this->Finish(ToGrpc(this->close_status_));
  }

  void Abort() override BATON_REQUIRES(this->mutex_) {
    this->closing_ = true;
    this->close_status_ = absl::ResourceExhaustedError("the peer does not read its session");
    this->DropQueued();
    context_->TryCancel();
  }

  grpc::CallbackServerContext* context_;  // valid until OnDone
  std::shared_ptr<Base> self_;
};

template <typename Out, typename In>
class ClientReactor final : public StreamReactor<grpc::ClientBidiReactor<Out, In>, Out, In> {
  using Base = StreamReactor<grpc::ClientBidiReactor<Out, In>, Out, In>;

 public:
  ClientReactor(Executor& executor, std::function<void()> on_done)
      : Base(executor), on_done_(std::move(on_done)) {}

  grpc::ClientContext& context() { return context_; }

  void Start() {
    self_ = this->shared_from_this();
    this->AddHold();  // for writes that start outside reactions
    this->StartCall();
    this->ReadNext();
  }

  void OnWritesDoneDone(bool /*ok*/) override {
    MutexLock lock(this->mutex_);
    writes_done_ = true;
    if (dropped_) context_.TryCancel();
  }

  // Ends the call soon, whatever the peer does; what was sent before an orderly Close goes first.
  void Drop() override {
    this->listener_ = nullptr;
    MutexLock lock(this->mutex_);
    if (this->ended_) return;
    dropped_ = true;
    const bool orderly = this->closing_ && this->close_status_.ok();
    this->closing_ = true;
    if (!orderly || this->writing_ || writes_done_) context_.TryCancel();
  }

  void OnDone(const grpc::Status& status) override {
    this->PostClosed(FromGrpc(status));
    if (on_done_) on_done_();
    self_.reset();
  }

 private:
  void OnReadsEnded() override {
    {
      MutexLock lock(this->mutex_);
      this->ended_ = true;
    }
    this->RemoveHold();
  }

  void EndWrites() override BATON_REQUIRES(this->mutex_) {
    if (this->ended_) return;
    if (this->close_status_.ok()) {
      this->StartWritesDone();
    } else {
      context_.TryCancel();
    }
  }

  void Abort() override BATON_REQUIRES(this->mutex_) {
    this->closing_ = true;
    this->writes_ended_ = true;
    context_.TryCancel();
  }

  grpc::ClientContext context_;
  bool dropped_ BATON_GUARDED_BY(this->mutex_) = false;
  bool writes_done_ BATON_GUARDED_BY(this->mutex_) = false;
  std::function<void()> on_done_;
  std::shared_ptr<Base> self_;
};

}  // namespace internal

// Takes the stream and returns the listener, which lives at least as long as the stream. Called on
// the executor.
template <typename Out, typename In>
using AcceptStream =
    std::function<typename Stream<Out, In>::Listener*(std::unique_ptr<Stream<Out, In>>)>;

// In a callback service: `return ServeStream<Response, Request>(context, executor, accept);`.
// `executor` must live until the server has shut down.
template <typename Out, typename In>
grpc::ServerBidiReactor<In, Out>* ServeStream(grpc::CallbackServerContext* context,
                                              Executor& executor, AcceptStream<Out, In> accept) {
  using Reactor = internal::ServerReactor<Out, In>;
  auto reactor = std::make_shared<Reactor>(context, executor);
  reactor->HoldSelf();
  executor.Post([reactor, accept = std::move(accept)] {
    reactor->SetListener(
        accept(std::make_unique<internal::StreamHandle<Reactor, Out, In>>(reactor)));
    reactor->ReadNext();
  });
  return reactor.get();
}

// Opens a stream by `start(context, reactor)`, which calls `stub->async()->Method(context,
// reactor)`. `on_done` (may be empty) runs on a gRPC thread when gRPC no longer touches anything of
// the call: the executor must live until then. Executor thread.
template <typename Out, typename In>
std::unique_ptr<Stream<Out, In>> OpenStream(
    Executor& executor, typename Stream<Out, In>::Listener* listener,
    const std::function<void(grpc::ClientContext*, grpc::ClientBidiReactor<Out, In>*)>& start,
    std::function<void()> on_done) {
  using Reactor = internal::ClientReactor<Out, In>;
  auto reactor = std::make_shared<Reactor>(executor, std::move(on_done));
  reactor->SetListener(listener);
  start(&reactor->context(), reactor.get());
  reactor->Start();
  return std::make_unique<internal::StreamHandle<Reactor, Out, In>>(reactor);
}

}  // namespace baton::rpc

#endif  // BATON_COMMON_RPC_GRPC_STREAM_H_
