#include "worker/worker_server.h"

#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <optional>
#include <utility>

#include "baton/transfer/v1/transfer.grpc.pb.h"
#include "baton/worker/v1/worker.grpc.pb.h"
#include "common/host_port.h"
#include "common/metrics_server.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/grpc_stream.h"
#include "common/status_macros.h"
#include "worker/grpc_sink_dialer.h"

namespace baton::worker {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;

class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  explicit WorkerService(WorkerNode& node) : node_(node) {}

  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* Session(
      grpc::CallbackServerContext* context) override {
    return rpc::ServeStream<v1::SessionResponse, v1::SessionRequest>(
        context, node_.loop(), [this](std::unique_ptr<RouterStream> stream) {
          return node_.core().AcceptRouter(std::move(stream));
        });
  }

  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context,
                                   const v1::SubmitRequest* request,
                                   v1::SubmitResponse* /*response*/) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    const bool queued = node_.loop().TryPost(
        [this, reactor, request] { reactor->Finish(rpc::ToGrpc(node_.core().Submit(*request))); });
    if (!queued) {
      reactor->Finish(
          grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the worker's core is behind"));
    }
    return reactor;
  }

 private:
  WorkerNode& node_;
};

class TransferService final : public transfer::v1::TransferService::CallbackService {
 public:
  explicit TransferService(WorkerNode& node) : node_(node) {}

  grpc::ServerBidiReactor<transfer::v1::SessionRequest, transfer::v1::SessionResponse>* Session(
      grpc::CallbackServerContext* context) override {
    return rpc::ServeStream<transfer::v1::SessionResponse, transfer::v1::SessionRequest>(
        context, node_.loop(), [this](std::unique_ptr<kvtransfer::SinkStream> stream) {
          return Accept(std::move(stream));
        });
  }

 private:
  // Loop's thread.
  kvtransfer::SinkStream::Listener* Accept(std::unique_ptr<kvtransfer::SinkStream> stream) {
    if (node_.decode_role() == nullptr) {
      stream->Close(absl::UnimplementedError("this worker is no sink"));
      return nullptr;
    }
    kvtransfer::SinkStream::Listener* taken = nullptr;
    node_.decode_role()->sink().Accept([&](kvtransfer::SinkStream::Listener& listener) {
      taken = &listener;
      return std::move(stream);
    });
    return taken;
  }

  WorkerNode& node_;
};

// Members are destroyed in reverse: metrics server first, node last but one.
class Server final : public WorkerServer {
 public:
  Server(const ServerOptions& options, const Logger& log) : options_(options), log_(log) {}
  ~Server() override { Stop(); }

  absl::Status Start() {
    BATON_ASSIGN_OR_RETURN(node_, WorkerNode::Load(options_.node, {metrics_, log_}));
    BATON_ASSIGN_OR_RETURN(const HostPort listen, ParseHostPort(options_.listen));
    BATON_RETURN_IF_ERROR(Listen(listen));
    BATON_ASSIGN_OR_RETURN(const std::string advertised,
                           AdvertisedAddress(options_.advertise, listen.host, port_));
    dialer_.emplace(node_->loop());
    BATON_RETURN_IF_ERROR(node_->Start(advertised, *dialer_));
    BATON_ASSIGN_OR_RETURN(
        metrics_server_,
        MetricsServer::Start(JoinHostPort(listen.host, options_.metrics_port), metrics_));
    metrics_address_ = JoinHostPort(listen.host, metrics_server_->port());
    server_->GetHealthCheckService()->SetServingStatus(true);
    server_->GetHealthCheckService()->SetServingStatus("baton.worker.v1.WorkerService", true);
    return absl::OkStatus();
  }

  const std::string& name() const override { return node_->options().name; }
  const std::string& listen_address() const override { return listen_address_; }
  const std::string& metrics_address() const override { return metrics_address_; }
  MetricsRegistry& metrics() override { return metrics_; }
  WorkerNode& node() override { return *node_; }

 private:
  absl::Status Listen(const HostPort& listen) {
    worker_service_.emplace(*node_);
    transfer_service_.emplace(*node_);
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(options_.listen, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&*worker_service_);
    builder.RegisterService(&*transfer_service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError("cannot listen on " + options_.listen);
    }
    server_->GetHealthCheckService()->SetServingStatus(false);
    listen_address_ = JoinHostPort(listen.host, port_);
    return absl::OkStatus();
  }

  void Stop() {
    if (server_ != nullptr) {
      server_->GetHealthCheckService()->SetServingStatus(false);
      server_->Shutdown(std::chrono::system_clock::now());
      server_->Wait();
    }
    if (node_ != nullptr) node_->Stop();
    dialer_.reset();
  }

  const ServerOptions options_;
  const Logger& log_;
  MetricsRegistry metrics_;
  std::unique_ptr<WorkerNode> node_;
  std::optional<GrpcSinkDialer> dialer_;
  std::optional<WorkerService> worker_service_;
  std::optional<TransferService> transfer_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<MetricsServer> metrics_server_;
  int port_ = 0;
  std::string listen_address_;
  std::string metrics_address_;
};

}  // namespace

absl::Status ServerOptions::Validate() const {
  BATON_RETURN_IF_ERROR(node.Validate());
  BATON_RETURN_IF_ERROR(ParseHostPort(listen).status());
  if (metrics_port < 0 || metrics_port > 65535) {
    return absl::InvalidArgumentError("metrics-port must be from 0 to 65535");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WorkerServer>> WorkerServer::Create(const ServerOptions& options,
                                                                   const Logger& log) {
  BATON_RETURN_IF_ERROR(options.Validate());
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::channelz::experimental::InitChannelzService();
  auto server = std::make_unique<Server>(options, log);
  BATON_RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<WorkerServer>(std::move(server));
}

}  // namespace baton::worker
