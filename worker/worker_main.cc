#include "worker/worker_main.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/config/command_line.h"
#include "common/config/settings.h"
#include "common/cores.h"
#include "common/cpu_list.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "worker/worker_server.h"

namespace baton::worker {
namespace {

absl::Status ApplyAffinity(const config::Settings& settings) {
  const std::string& text = settings.Text("affinity");
  if (text.empty()) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const std::vector<unsigned> list, ParseCpuList(text));
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const unsigned cpu : list) CPU_SET(cpu, &cpus);
  if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) {
    return settings.Bad("affinity", std::strerror(errno));
  }
  return absl::OkStatus();
}

// Prefill gives way on cores that it shares with a decode worker, whose streams people watch; alone
// on its cores it runs as fast (docs/decisions/0031-prefill-gives-way.md). Threads to come inherit
// it.
void GiveWay(const Logger& log) {
  constexpr int kNicer = 5;
  errno = 0;
  if (nice(kNicer) == -1 && errno != 0) {
    log.Warning("computes at the priority of decode workers", {{"error", std::strerror(errno)}});
  }
}

uint32_t Count(const config::Settings& settings, const std::string& name) {
  return static_cast<uint32_t>(settings.Integer(name));
}

void FillModelOptions(const config::Settings& settings, model::LoadOptions& model) {
  model.path = settings.Text("model");
  model.backend = settings.Text("backend");
  model.kv_type = settings.Text("kv-type");
  model.threads = Count(settings, "threads");
  model.block_size = Count(settings, "block-size");
  model.context = Count(settings, "context");
}

void FillWorkerOptions(const config::Settings& settings, WorkerOptions& worker) {
  worker.name = settings.Text("name");
  worker.prefix_cache = settings.Text("prefix-cache") == "on";
  worker.max_running = Count(settings, "max-running");
  worker.max_queue = Count(settings, "max-queue");
  worker.step_tokens = Count(settings, "step-tokens");
  worker.lease = std::chrono::milliseconds(settings.Integer("lease-ms"));
  worker.heartbeat = std::min<Duration>(worker.heartbeat, worker.lease / 4);
  worker.reserve_patience = std::chrono::milliseconds(settings.Integer("reserve-patience-ms"));
}

// Data connections are on the host of the gRPC server unless told otherwise.
absl::Status FillDataAddress(const config::Settings& settings, NodeOptions& node) {
  BATON_ASSIGN_OR_RETURN(node.data_listen, ParseHostPort(settings.Text("listen")));
  node.data_listen.port = 0;
  const std::string& listen = settings.Text("data-listen");
  if (!listen.empty()) {
    BATON_ASSIGN_OR_RETURN(node.data_listen, ParseHostPort(listen));
  }
  const bool own = !settings.Text("data-advertise").empty();
  const std::string& advertise = settings.Text(own ? "data-advertise" : "advertise");
  if (advertise.empty()) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const std::string told, AdvertisedAddress(advertise, "", 0));
  BATON_ASSIGN_OR_RETURN(node.data_advertise, ParseHostPort(told));
  if (!own) node.data_advertise.port = 0;
  return absl::OkStatus();
}

absl::StatusOr<ServerOptions> MakeOptions(const config::Settings& settings, v1::Role role) {
  ServerOptions options;
  options.listen = settings.Text("listen");
  options.advertise = settings.Text("advertise");
  options.metrics_port = static_cast<int>(settings.Integer("metrics-port"));
  options.node.transport = settings.Text("transport");
  options.node.kv_blocks = Count(settings, "kv-blocks");
  options.node.worker.role = role;
  FillModelOptions(settings, options.node.model);
  options.node.worker.cores = OwnCores(options.node.model.threads);
  options.node.model.threads = std::max(1u, options.node.worker.cores.threads);
  FillWorkerOptions(settings, options.node.worker);
  BATON_RETURN_IF_ERROR(options.Validate());
  BATON_RETURN_IF_ERROR(FillDataAddress(settings, options.node));
  return options;
}

// Readers see the whole line or no file.
absl::Status WriteReady(const std::string& path, const std::string& line) {
  if (path.empty()) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    return absl::OkStatus();
  }
  const std::string partial = path + "." + std::to_string(getpid());
  {
    std::ofstream out(partial);
    out << line << '\n';
    if (!out.flush()) return absl::UnavailableError("--ready-file: cannot write " + partial);
  }
  if (std::rename(partial.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError("--ready-file: cannot write " + path);
  }
  return absl::OkStatus();
}

absl::Status Serve(const config::Settings& settings, v1::Role role, const Logger& log,
                   const sigset_t& stop_signals) {
  BATON_RETURN_IF_ERROR(ApplyAffinity(settings));
  if (role == v1::ROLE_PREFILL) GiveWay(log);
  BATON_ASSIGN_OR_RETURN(const ServerOptions options, MakeOptions(settings, role));
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerServer> server,
                         WorkerServer::Create(options, log));
  nlohmann::json ready;
  ready["role"] = role == v1::ROLE_PREFILL ? "prefill" : "decode";
  ready["name"] = server->name();
  ready["listen"] = server->listen_address();
  ready["metrics"] = server->metrics_address();
  if (!server->node().data_address().empty()) ready["data"] = server->node().data_address();
  BATON_RETURN_IF_ERROR(WriteReady(settings.Text("ready-file"), ready.dump()));
  log.Info("worker serves", {{"name", server->name()},
                             {"listen", server->listen_address()},
                             {"metrics", server->metrics_address()}});
  int signal = 0;
  sigwait(&stop_signals, &signal);
  log.Info("worker stops", {{"signal", signal}});
  return absl::OkStatus();
}

}  // namespace

int WorkerMain(int argc, char** argv, v1::Role role) {
  const char* const component = role == v1::ROLE_PREFILL ? "prefill-worker" : "decode-worker";
  const config::CommandLine command_line = config::ReadCommandLine(component, argc, argv);
  if (command_line.exit_code.has_value()) return *command_line.exit_code;
  // Before any thread exists, so that every thread inherits it and only sigwait takes the signals.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  Logger::Options log_options;
  log_options.component = component;
  const Logger log(log_options);
  const absl::Status status = Serve(command_line.settings, role, log, stop_signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton-%s: %s\n", component, std::string(status.message()).c_str());
  return 1;
}

}  // namespace baton::worker
