#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/config/command_line.h"
#include "common/config/settings.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "router/placement.h"
#include "router/router_server.h"

namespace {

using baton::config::Settings;
using baton::router::RouterServerOptions;

size_t Count(const Settings& settings, const std::string& name) {
  return static_cast<size_t>(settings.Integer(name));
}

baton::router::PlacementPolicy PolicyNamed(const std::string& name) {
  using Policy = baton::router::PlacementPolicy;
  if (name == "least-work") return Policy::kLeastWork;
  return name == "new-blocks" ? Policy::kQueuedAndNewBlocks : Policy::kPredictedSeconds;
}

RouterServerOptions MakeOptions(const Settings& settings) {
  RouterServerOptions options;
  options.model_path = settings.Text("model");
  options.listen = settings.Text("listen");
  options.admin_listen = settings.Text("admin-listen");
  options.metrics_port = static_cast<int>(settings.Integer("metrics-port"));
  options.text_threads = Count(settings, "threads");
  auto& core = options.core;
  for (const std::string& address : settings.List("prefill-workers")) {
    core.workers.push_back({address, true});
  }
  for (const std::string& address : settings.List("decode-workers")) {
    core.workers.push_back({address, false});
  }
  options.resolve_interval = std::chrono::milliseconds(settings.Integer("resolve-ms"));
  core.max_queue = Count(settings, "max-queue");
  core.max_queue_tokens = static_cast<uint64_t>(settings.Integer("max-queue-tokens"));
  core.ttft_target = std::chrono::milliseconds(settings.Integer("ttft-target-ms"));
  core.age_credit = std::chrono::milliseconds(settings.Integer("age-credit-ms"));
  core.default_max_tokens = static_cast<uint32_t>(settings.Integer("default-max-tokens"));
  core.max_attempts = static_cast<uint32_t>(settings.Integer("max-attempts"));
  core.prompt_window = Count(settings, "prompt-window");
  core.placement = PolicyNamed(settings.Text("placement"));
  core.cache_index_bytes = Count(settings, "cache-index-mb") << 20;
  core.worker_silence = std::chrono::milliseconds(settings.Integer("worker-silence-ms"));
  core.heartbeat = std::min<baton::Duration>(core.heartbeat, core.worker_silence / 4);
  options.service.client_buffer_bytes = Count(settings, "client-buffer-bytes");
  options.service.slow_client_timeout =
      std::chrono::milliseconds(settings.Integer("slow-client-timeout-ms"));
  options.client_keepalive = std::chrono::milliseconds(settings.Integer("client-keepalive-ms"));
  return options;
}

// Atomic: a reader sees the whole line or no file.
void WriteReadyFile(const std::string& path, const nlohmann::json& line) {
  if (path.empty()) return;
  const std::string partial = path + ".partial";
  std::ofstream(partial) << line.dump() << "\n";
  std::rename(partial.c_str(), path.c_str());
}

absl::Status Run(const Settings& settings) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  baton::Logger::Options log_options;
  log_options.component = "router";
  const baton::Logger log(log_options);
  RouterServerOptions options = MakeOptions(settings);
  // The main thread writes the file, so that the server's addresses are known.
  options.on_all_workers_ready = [] { kill(getpid(), SIGUSR1); };
  BATON_ASSIGN_OR_RETURN(auto server, baton::router::RouterServer::Start(options, log));
  log.Info("router listens",
           {{"listen", server->listen_address()}, {"metrics", server->metrics_address()}});
  const nlohmann::json ready = {{"role", "router"},
                                {"listen", server->listen_address()},
                                {"metrics", server->metrics_address()},
                                {"admin", server->admin_address()},
                                {"name", settings.Text("name")}};
  int signal = 0;
  while (sigwait(&signals, &signal) == 0 && signal == SIGUSR1) {
    WriteReadyFile(settings.Text("ready-file"), ready);
  }
  log.Info("router stops", {{"signal", signal}});
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const baton::config::CommandLine command_line =
      baton::config::ReadCommandLine("router", argc, argv);
  if (command_line.exit_code.has_value()) return *command_line.exit_code;
  const absl::Status status = Run(command_line.settings);
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton-router: %s\n", std::string(status.message()).c_str());
  return 1;
}
