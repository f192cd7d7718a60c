#include "router/grpc_worker_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/channel_arguments.h>

#include <utility>

#include "baton/worker/v1/worker.grpc.pb.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/grpc_stream.h"
#include "common/rpc/own_channel.h"

namespace baton::router {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return rpc::OwnChannel(address, arguments);
}

class GrpcWorkerClient : public WorkerClient {
 public:
  GrpcWorkerClient(std::string address, Executor& executor)
      : executor_(executor), address_(std::move(address)) {}

  ~GrpcWorkerClient() override { *alive_ = false; }

  // Each session has a connection of its own: one that has died without a word, whose peer may
  // never say so, is not asked again.
  std::unique_ptr<WorkerSession> OpenSession(WorkerSession::Listener& listener) override {
    stub_ = worker::v1::WorkerService::NewStub(Connect(address_));
    return rpc::OpenStream<worker::v1::SessionRequest, worker::v1::SessionResponse>(
        executor_, &listener,
        [stub = stub_](grpc::ClientContext* context, auto* reactor) {
          stub->async()->Session(context, reactor);
        },
        // The channel lives as long as the call.
        [stub = stub_] {});
  }

  void Submit(worker::v1::SubmitRequest request, Duration timeout,
              std::function<void(absl::Status)> done) override {
    struct Call {
      grpc::ClientContext context;
      worker::v1::SubmitRequest request;
      worker::v1::SubmitResponse response;
    };
    auto call = std::make_shared<Call>();
    call->request = std::move(request);
    call->context.set_deadline(std::chrono::system_clock::now() +
                               std::chrono::duration_cast<std::chrono::microseconds>(timeout));
    stub_->async()->Submit(&call->context, &call->request, &call->response,
                           [call, stub = stub_, alive = alive_, done = std::move(done),
                            &executor = executor_](const grpc::Status& status) {
                             executor.Post([alive, done, status = rpc::FromGrpc(status)] {
                               if (*alive) done(status);
                             });
                           });
  }

 private:
  Executor& executor_;
  const std::string address_;
  std::shared_ptr<worker::v1::WorkerService::Stub> stub_;             // of the latest session
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // executor thread
};

}  // namespace

std::unique_ptr<WorkerClient> MakeGrpcWorkerClient(const std::string& address, Executor& executor) {
  return std::make_unique<GrpcWorkerClient>(address, executor);
}

}  // namespace baton::router
