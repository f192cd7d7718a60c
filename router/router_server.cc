#include "router/router_server.h"

#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/service_type.h>

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/event_loop.h"
#include "common/metrics.h"
#include "common/metrics_server.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/worker_pool.h"
#include "router/error_reasons.h"
#include "router/frontend.h"
#include "router/grpc_worker_client.h"
#include "router/model_text.h"
#include "router/router_core.h"
#include "router/status_details.h"
#include "router/worker_discovery.h"

namespace baton::router {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;
constexpr char kServiceName[] = "baton.v1.InferenceService";

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace

class RouterServer::Impl : public WorkerDiscovery::Observer {
 public:
  Impl(RouterServerOptions options, std::unique_ptr<ModelText> model, const Logger& log)
      : options_(std::move(options)),
        log_(log),
        model_(std::move(model)),
        loop_(LoopOptions()),
        pool_({.name = "text", .num_threads = options_.text_threads}) {}

  ~Impl() override { Stop(); }

  absl::Status Start() {
    MakeCore();
    MakeDiscovery();
    loop_.Start();
    BATON_RETURN_IF_ERROR(MakeServer());
    BATON_RETURN_IF_ERROR(MakeAdmin());
    BATON_ASSIGN_OR_RETURN(
        metrics_server_,
        MetricsServer::Start(HostOf(options_.listen) + ":" + std::to_string(options_.metrics_port),
                             metrics_));
    metrics_address_ = HostOf(options_.listen) + ":" + std::to_string(metrics_server_->port());
    // The core's first callback reaches the server, so the sessions open last.
    OnLoop([this] {
      core_->Start();
      discovery_->Start();
    });
    return absl::OkStatus();
  }

  std::string listen_address_;
  std::string metrics_address_;
  std::string admin_address_;

 private:
  EventLoop::Options LoopOptions() {
    EventLoop::Options options;
    options.name = "router";
    Counter slow =
        metrics_
            .AddCounter("baton_slow_turns_total", "Turns of the core that took longer than 1 ms.")
            .Get();
    options.on_slow_turn = [slow](Duration) mutable { slow.Increment(); };
    return options;
  }

  void MakeCore() {
    CoreOptions core = options_.core;
    std::erase_if(core.workers, [](const WorkerAddress& w) { return !IsNumeric(w.address); });
    core.epoch = NewEpoch(random_);
    core.vocab_hash = model_->vocab().hash();
    core.on_workers = [this](const WorkersState& state) { OnWorkers(state); };
    core_ = std::make_unique<RouterCore>(
        std::move(core), loop_,
        [this](const std::string& address) { return MakeGrpcWorkerClient(address, loop_); },
        metrics_, log_);
    frontend_ = std::make_unique<Frontend>(
        Frontend::Context{*model_, *core_, loop_, pool_, random_, wall_clock_});
    service_ = MakeGenerateService(options_.service, loop_, *frontend_);
  }

  void MakeDiscovery() {
    resolver_ = options_.make_resolver ? options_.make_resolver(loop_) : MakeSystemResolver(loop_);
    WorkerDiscovery::Options options;
    options.names = options_.core.workers;
    std::erase_if(options.names, [](const WorkerAddress& w) { return IsNumeric(w.address); });
    options.interval = options_.resolve_interval;
    discovery_ =
        std::make_unique<WorkerDiscovery>(std::move(options), *resolver_, loop_, *this, log_);
  }

  // WorkerDiscovery::Observer
  void OnWorkerFound(const WorkerAddress& worker) override { core_->AddWorker(worker); }
  void OnWorkerGone(const std::string& address) override { core_->RemoveWorker(address); }

  absl::Status MakeServer() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(options_.listen, grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    // Two processes on one port would share its clients without a word.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    AddKeepalive(builder);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError("cannot listen on " + options_.listen);
    }
    listen_address_ = HostOf(options_.listen) + ":" + std::to_string(port);
    SetServing(false);
    return absl::OkStatus();
  }

  // A client that is cut off without a word says so by not answering pings, also while it waits for
  // its first token: hence no limit on pings without data.
  void AddKeepalive(grpc::ServerBuilder& builder) const {
    const int half = static_cast<int>(std::max<int64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(options_.client_keepalive).count() /
            2,
        1));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, half);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, half);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    // Clients may probe us as well, also while they wait.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  }

  // After the public server: the plugin adds itself to every server built later.
  absl::Status MakeAdmin() {
    if (options_.admin_listen.empty()) return absl::OkStatus();
    grpc::channelz::experimental::InitChannelzService();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(options_.admin_listen, grpc::InsecureServerCredentials(), &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    admin_server_ = builder.BuildAndStart();
    if (admin_server_ == nullptr || port == 0) {
      return absl::UnavailableError("cannot listen on " + options_.admin_listen);
    }
    admin_address_ = HostOf(options_.admin_listen) + ":" + std::to_string(port);
    return absl::OkStatus();
  }

  void SetServing(bool serving) {
    auto* health = server_->GetHealthCheckService();
    health->SetServingStatus(serving);
    health->SetServingStatus(kServiceName, serving);
  }

  void OnWorkers(const WorkersState& state) {
    SetServing(state.can_serve);
    // Whoever is behind the name now may not be who was.
    if (state.ready < std::exchange(ready_workers_, state.ready)) discovery_->Refresh();
    if (state.all_ready && discovery_->complete() && options_.on_all_workers_ready) {
      std::exchange(options_.on_all_workers_ready, nullptr)();
    }
  }

  // Runs `task` on the loop and waits for it.
  void OnLoop(std::function<void()> task) {
    std::promise<void> done;
    loop_.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  void Stop() {
    if (server_ != nullptr) {
      OnLoop([this] {
        frontend_->Shutdown(ErrorWithReason(absl::StatusCode::kUnavailable,
                                            "the router is shutting down", kReasonShuttingDown));
      });
      server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
      server_->Wait();
    }
    if (admin_server_ != nullptr) admin_server_->Shutdown(std::chrono::system_clock::now());
    if (core_ != nullptr) {
      OnLoop([this] {
        discovery_->Stop();
        core_->Stop();
      });
    }
    loop_.Stop();
  }

  RouterServerOptions options_;
  const Logger& log_;
  const std::unique_ptr<ModelText> model_;
  OsRandom random_;
  SystemWallClock wall_clock_;
  MetricsRegistry metrics_;
  EventLoop loop_;
  WorkerPool pool_;
  std::unique_ptr<RouterCore> core_;
  std::unique_ptr<Resolver> resolver_;
  std::unique_ptr<WorkerDiscovery> discovery_;
  size_t ready_workers_ = 0;  // the loop's thread
  std::unique_ptr<Frontend> frontend_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::Server> admin_server_;
  std::unique_ptr<MetricsServer> metrics_server_;
};

RouterServer::RouterServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RouterServer::~RouterServer() = default;

absl::StatusOr<std::unique_ptr<RouterServer>> RouterServer::Start(RouterServerOptions options,
                                                                  const Logger& log) {
  BATON_ASSIGN_OR_RETURN(auto model, ModelText::Load(options.model_path));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(model), log);
  BATON_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<RouterServer>(new RouterServer(std::move(impl)));
}

const std::string& RouterServer::listen_address() const { return impl_->listen_address_; }
const std::string& RouterServer::metrics_address() const { return impl_->metrics_address_; }
const std::string& RouterServer::admin_address() const { return impl_->admin_address_; }

}  // namespace baton::router
