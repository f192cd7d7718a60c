#include "worker/worker_main.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "common/dashed_flags.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "worker/host_port.h"
#include "worker/worker_server.h"

ABSL_FLAG(std::string, model, "", "GGUF file with weights and vocabulary (required)");
ABSL_FLAG(std::string, name, "", "name of this worker in metrics and answers; default ROLE-PORT");
ABSL_FLAG(std::string, listen, "127.0.0.1:0", "HOST:PORT of the gRPC server; port 0: a free one");
ABSL_FLAG(std::string, advertise, "", "HOST[:PORT] that others reach this worker by");
ABSL_FLAG(int32_t, metrics_port, 0, "port of /metrics; 0: a free one");
ABSL_FLAG(std::string, ready_file, "", "written as one JSON line once the worker serves");
ABSL_FLAG(std::string, transport, "auto", "how KV blocks travel: auto, tcp or shm");
ABSL_FLAG(std::string, backend, "cpu", "cpu, cpu-scalar or reference");
ABSL_FLAG(std::string, kv_type, "auto", "number type of the KV cache; auto: as the backend says");
ABSL_FLAG(int32_t, threads, 0, "threads of the model; 0: one per CPU this process may use");
ABSL_FLAG(std::string, affinity, "", "CPUs to run on, as in 0,2-3; empty: any");
ABSL_FLAG(int64_t, kv_blocks, 1024, "KV blocks of the pool");
ABSL_FLAG(int32_t, block_size, 16, "token slots of a KV block: a power of two, 16 to 256");
ABSL_FLAG(int64_t, context, 0, "lowers the model's context length; 0: as the model says");
ABSL_FLAG(int64_t, max_running, 64, "sequences in the batch");
ABSL_FLAG(int64_t, max_queue, 1024, "requests that wait; beyond them RESOURCE_EXHAUSTED");
ABSL_FLAG(int64_t, step_tokens, 64, "token budget of a step");
ABSL_FLAG(int64_t, lease_ms, 10000, "a peer that is silent for so long is lost");
ABSL_FLAG(int64_t, reserve_patience_ms, 5000,
          "how long a request looks for room at its decode workers");

namespace baton::worker {
namespace {

absl::Status Bad(const std::string& text) { return absl::InvalidArgumentError(text); }

absl::StatusOr<uint32_t> Positive(const char* flag, int64_t value, bool zero_allowed = false) {
  if (value < (zero_allowed ? 0 : 1) || value > INT32_MAX) {
    return Bad(std::string("--") + flag + " must be from " + (zero_allowed ? "0" : "1") +
               " to 2147483647, not " + std::to_string(value));
  }
  return static_cast<uint32_t>(value);
}

// "0,2-3".
absl::StatusOr<cpu_set_t> ParseCpus(const std::string& text) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    unsigned first = 0;
    auto parsed = std::from_chars(at, end, first);
    unsigned last = first;
    if (parsed.ec == std::errc{} && parsed.ptr < end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    }
    const bool ends = parsed.ptr == end || (*parsed.ptr == ',' && parsed.ptr + 1 < end);
    if (parsed.ec != std::errc{} || !ends || first > last || last >= CPU_SETSIZE) {
      return Bad("--affinity: expected CPUs as in 0,2-3, got \"" + text + "\"");
    }
    for (unsigned cpu = first; cpu <= last; ++cpu) CPU_SET(cpu, &cpus);
    at = parsed.ptr == end ? end : parsed.ptr + 1;
  }
  return cpus;
}

absl::Status ApplyAffinity(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const cpu_set_t cpus, ParseCpus(text));
  if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) {
    return Bad("--affinity " + text + ": " + std::strerror(errno));
  }
  return absl::OkStatus();
}

uint32_t UsableCpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return 1;
  return static_cast<uint32_t>(CPU_COUNT(&cpus));
}

absl::Status FillModelOptions(model::LoadOptions& model) {
  model.path = absl::GetFlag(FLAGS_model);
  if (model.path.empty()) return Bad("--model FILE is required");
  model.backend = absl::GetFlag(FLAGS_backend);
  const std::string kv_type = absl::GetFlag(FLAGS_kv_type);
  const char* const only = model.backend == "reference" ? "f64" : "f16";
  if (kv_type != "auto" && kv_type != only) {
    return Bad("--kv-type " + kv_type + ": backend " + model.backend + " has " + only);
  }
  BATON_ASSIGN_OR_RETURN(model.threads, Positive("threads", absl::GetFlag(FLAGS_threads), true));
  if (model.threads == 0) model.threads = UsableCpus();
  BATON_ASSIGN_OR_RETURN(model.block_size, Positive("block-size", absl::GetFlag(FLAGS_block_size)));
  BATON_ASSIGN_OR_RETURN(model.context, Positive("context", absl::GetFlag(FLAGS_context), true));
  return absl::OkStatus();
}

absl::Status FillWorkerOptions(WorkerOptions& worker) {
  worker.name = absl::GetFlag(FLAGS_name);
  BATON_ASSIGN_OR_RETURN(worker.max_running,
                         Positive("max-running", absl::GetFlag(FLAGS_max_running)));
  BATON_ASSIGN_OR_RETURN(worker.max_queue, Positive("max-queue", absl::GetFlag(FLAGS_max_queue)));
  BATON_ASSIGN_OR_RETURN(worker.step_tokens,
                         Positive("step-tokens", absl::GetFlag(FLAGS_step_tokens)));
  BATON_ASSIGN_OR_RETURN(const uint32_t lease_ms,
                         Positive("lease-ms", absl::GetFlag(FLAGS_lease_ms)));
  worker.lease = std::chrono::milliseconds(lease_ms);
  worker.heartbeat = std::min<Duration>(worker.heartbeat, worker.lease / 4);
  BATON_ASSIGN_OR_RETURN(const uint32_t patience_ms,
                         Positive("reserve-patience-ms", absl::GetFlag(FLAGS_reserve_patience_ms)));
  worker.reserve_patience = std::chrono::milliseconds(patience_ms);
  return absl::OkStatus();
}

absl::StatusOr<ServerOptions> OptionsFromFlags(v1::Role role) {
  ServerOptions options;
  options.listen = absl::GetFlag(FLAGS_listen);
  options.advertise = absl::GetFlag(FLAGS_advertise);
  options.metrics_port = absl::GetFlag(FLAGS_metrics_port);
  options.node.transport = absl::GetFlag(FLAGS_transport);
  BATON_ASSIGN_OR_RETURN(options.node.kv_blocks,
                         Positive("kv-blocks", absl::GetFlag(FLAGS_kv_blocks)));
  options.node.worker.role = role;
  BATON_RETURN_IF_ERROR(FillModelOptions(options.node.model));
  BATON_RETURN_IF_ERROR(FillWorkerOptions(options.node.worker));
  BATON_RETURN_IF_ERROR(options.Validate());
  BATON_ASSIGN_OR_RETURN(const HostPort listen, ParseHostPort(options.listen));
  options.node.data_listen_host = listen.host;
  if (!options.advertise.empty()) {
    BATON_ASSIGN_OR_RETURN(const std::string advertised,
                           AdvertisedAddress(options.advertise, listen.host, listen.port));
    BATON_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(advertised));
    options.node.data_advertise_host = parsed.host;
  }
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
    if (!out.flush()) return Bad("--ready-file: cannot write " + partial);
  }
  if (std::rename(partial.c_str(), path.c_str()) != 0) {
    return Bad("--ready-file: cannot write " + path);
  }
  return absl::OkStatus();
}

absl::Status Serve(v1::Role role, const Logger& log, const sigset_t& stop_signals) {
  BATON_RETURN_IF_ERROR(ApplyAffinity(absl::GetFlag(FLAGS_affinity)));
  BATON_ASSIGN_OR_RETURN(const ServerOptions options, OptionsFromFlags(role));
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerServer> server,
                         WorkerServer::Create(options, log));
  nlohmann::json ready;
  ready["role"] = role == v1::ROLE_PREFILL ? "prefill" : "decode";
  ready["name"] = server->name();
  ready["listen"] = server->listen_address();
  ready["metrics"] = server->metrics_address();
  BATON_RETURN_IF_ERROR(WriteReady(absl::GetFlag(FLAGS_ready_file), ready.dump()));
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
  absl::SetProgramUsageMessage(std::string("baton-") + component + " --model FILE [flags]");
  DashesToUnderscores(argc, argv);
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    std::fprintf(stderr, "baton-%s: unexpected argument \"%s\"\n", component, rest[1]);
    return 1;
  }
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
  const absl::Status status = Serve(role, log, stop_signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton-%s: %s\n", component, std::string(status.message()).c_str());
  return 1;
}

}  // namespace baton::worker
