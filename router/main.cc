#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_split.h"
#include "common/dashed_flags.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "router/router_server.h"

ABSL_FLAG(std::string, model, "", "GGUF with vocabulary and template; tensors are not needed");
ABSL_FLAG(std::vector<std::string>, prefill_workers, {}, "HOST:PORT,... of prefill workers");
ABSL_FLAG(std::vector<std::string>, decode_workers, {}, "HOST:PORT,... of decode workers");
ABSL_FLAG(std::string, listen, "127.0.0.1:0", "HOST:PORT of the public API; port 0: a free one");
ABSL_FLAG(std::string, admin_listen, "", "HOST:PORT of channelz; empty: none");
ABSL_FLAG(int, metrics_port, 0, "port of /metrics; 0: a free one");
ABSL_FLAG(int, max_queue, 1024, "requests that wait for a worker before new ones are refused");
ABSL_FLAG(int, default_max_tokens, 512, "max_tokens of a request that names none");
ABSL_FLAG(int, max_attempts, 16, "placements of one request");
ABSL_FLAG(int, prompt_window, 32, "requests without a first token that one worker may have");
ABSL_FLAG(int, worker_silence_ms, 4000, "a worker that says nothing for so long is lost");
ABSL_FLAG(int, client_buffer_bytes, 256 << 10, "held for one client that reads slowly");
ABSL_FLAG(int, slow_client_timeout_ms, 30000, "a client that takes nothing for so long ends");
ABSL_FLAG(int, threads, 1, "threads that tokenize");
ABSL_FLAG(std::string, name, "router", "for people");
ABSL_FLAG(std::string, ready_file, "",
          "written once every worker is connected: one JSON line with the addresses");

namespace {

using baton::router::RouterServerOptions;

absl::Status CheckFlags() {
  if (absl::GetFlag(FLAGS_model).empty()) return absl::InvalidArgumentError("--model: missing");
  if (absl::GetFlag(FLAGS_decode_workers).empty()) {
    return absl::InvalidArgumentError("--decode-workers: at least one is needed");
  }
  const std::vector<std::pair<const char*, int>> positive = {
      {"--max-queue", absl::GetFlag(FLAGS_max_queue)},
      {"--default-max-tokens", absl::GetFlag(FLAGS_default_max_tokens)},
      {"--max-attempts", absl::GetFlag(FLAGS_max_attempts)},
      {"--prompt-window", absl::GetFlag(FLAGS_prompt_window)},
      {"--worker-silence-ms", absl::GetFlag(FLAGS_worker_silence_ms)},
      {"--client-buffer-bytes", absl::GetFlag(FLAGS_client_buffer_bytes)},
      {"--slow-client-timeout-ms", absl::GetFlag(FLAGS_slow_client_timeout_ms)},
      {"--threads", absl::GetFlag(FLAGS_threads)}};
  for (const auto& [name, value] : positive) {
    if (value < 1) return absl::InvalidArgumentError(std::string(name) + ": must be at least 1");
  }
  return absl::OkStatus();
}

RouterServerOptions OptionsFromFlags() {
  RouterServerOptions options;
  options.model_path = absl::GetFlag(FLAGS_model);
  options.listen = absl::GetFlag(FLAGS_listen);
  options.admin_listen = absl::GetFlag(FLAGS_admin_listen);
  options.metrics_port = absl::GetFlag(FLAGS_metrics_port);
  options.text_threads = static_cast<size_t>(absl::GetFlag(FLAGS_threads));
  auto& core = options.core;
  for (const std::string& address : absl::GetFlag(FLAGS_prefill_workers)) {
    core.workers.push_back({address, true});
  }
  for (const std::string& address : absl::GetFlag(FLAGS_decode_workers)) {
    core.workers.push_back({address, false});
  }
  core.max_queue = static_cast<size_t>(absl::GetFlag(FLAGS_max_queue));
  core.default_max_tokens = static_cast<uint32_t>(absl::GetFlag(FLAGS_default_max_tokens));
  core.max_attempts = static_cast<uint32_t>(absl::GetFlag(FLAGS_max_attempts));
  core.prompt_window = static_cast<size_t>(absl::GetFlag(FLAGS_prompt_window));
  core.worker_silence = std::chrono::milliseconds(absl::GetFlag(FLAGS_worker_silence_ms));
  core.heartbeat = std::min<baton::Duration>(core.heartbeat, core.worker_silence / 4);
  options.service.client_buffer_bytes =
      static_cast<size_t>(absl::GetFlag(FLAGS_client_buffer_bytes));
  options.service.slow_client_timeout =
      std::chrono::milliseconds(absl::GetFlag(FLAGS_slow_client_timeout_ms));
  return options;
}

// Atomic: a reader sees the whole line or no file.
void WriteReadyFile(const std::string& path, const nlohmann::json& line) {
  if (path.empty()) return;
  const std::string partial = path + ".partial";
  std::ofstream(partial) << line.dump() << "\n";
  std::rename(partial.c_str(), path.c_str());
}

absl::Status Run() {
  BATON_RETURN_IF_ERROR(CheckFlags());
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  baton::Logger::Options log_options;
  log_options.component = "router";
  const baton::Logger log(log_options);
  RouterServerOptions options = OptionsFromFlags();
  // The main thread writes the file, so that the server's addresses are known.
  options.on_all_workers_ready = [] { kill(getpid(), SIGUSR1); };
  BATON_ASSIGN_OR_RETURN(auto server, baton::router::RouterServer::Start(options, log));
  log.Info("router listens",
           {{"listen", server->listen_address()}, {"metrics", server->metrics_address()}});
  const nlohmann::json ready = {{"role", "router"},
                                {"listen", server->listen_address()},
                                {"metrics", server->metrics_address()},
                                {"admin", server->admin_address()},
                                {"name", absl::GetFlag(FLAGS_name)}};
  int signal = 0;
  while (sigwait(&signals, &signal) == 0 && signal == SIGUSR1) {
    WriteReadyFile(absl::GetFlag(FLAGS_ready_file), ready);
  }
  log.Info("router stops", {{"signal", signal}});
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  baton::DashesToUnderscores(argc, argv);
  absl::SetProgramUsageMessage("baton-router --model F --decode-workers H:P,... [flags]");
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    std::fprintf(stderr, "baton-router: unexpected argument %s\n", rest[1]);
    return 2;
  }
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton-router: %s\n", std::string(status.message()).c_str());
  return 1;
}
