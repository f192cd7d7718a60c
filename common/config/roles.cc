#include "common/config/roles.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "common/cpu_list.h"
#include "common/host_port.h"
#include "common/status_macros.h"

namespace baton::config {
namespace {

constexpr int64_t kMost = INT32_MAX;
constexpr int64_t kMaxPort = 65535;

std::vector<Option> WorkerOptions() {
  return {
      Text("model", "", "GGUF file with weights and vocabulary"),
      Text("name", "", "of this worker in metrics and answers; empty: ROLE-PORT"),
      Text("listen", "127.0.0.1:0", "HOST:PORT of the gRPC server; port 0: a free one"),
      Text("advertise", "", "HOST[:PORT] that others reach this worker by; empty: listen"),
      Text("data-listen", "", "HOST:PORT of tcp data connections; empty: host of listen, port 0"),
      Text("data-advertise", "",
           "HOST[:PORT] that prefill workers reach it by; empty: host of advertise, else "
           "data-listen"),
      Integer("metrics-port", 0, 0, kMaxPort, "port of /metrics; 0: a free one"),
      Text("ready-file", "", "written as one JSON line once the worker serves"),
      Choice("transport", {"auto", "tcp", "shm"}, "how KV blocks travel"),
      Choice("backend", {"cpu", "cpu-scalar", "cpu-avx2", "cpu-avxvnni", "cpu-avx512", "reference"},
             "arithmetic of the model; cpu-TIER: that instruction tier of cpu, the same tokens"),
      Choice("kv-type", {"auto", "f16", "int8", "f64"}, "number type of the KV cache"),
      Integer("threads", 0, 0, kMost, "of the model; 0: one per CPU this process may use"),
      Text("affinity", "", "CPUs to run on, as in 0,2-3; empty: any"),
      Integer("kv-blocks", 1024, 1, kMost, "KV blocks of the pool"),
      Integer("block-size", 16, 16, 256, "token slots of a KV block, a power of two"),
      Integer("context", 0, 0, kMost, "lowers the model's context length; 0: as the model says"),
      Choice("prefix-cache", {"on", "off"}, "finished KV blocks serve prompts that begin alike"),
      Integer("max-running", 64, 1, kMost, "choices in the batch"),
      Integer("max-queue", 1024, 1, kMost, "requests that wait; beyond them RESOURCE_EXHAUSTED"),
      Integer("step-tokens", 0, 0, kMost,
              "most tokens of a step; 0: chosen by measured speed, up to 512"),
      Integer("lease-ms", 10000, 1, kMost, "a peer that is silent for so long is lost"),
      Integer("reserve-patience-ms", 5000, 1, kMost,
              "how long a request looks for room at its decode workers"),
  };
}

std::vector<Option> RouterOptions() {
  return {
      Text("model", "", "GGUF with vocabulary and template; tensors are not needed"),
      List("prefill-workers", "HOST:PORT,... of prefill workers; a name is all its addresses"),
      List("decode-workers", "HOST:PORT,... of decode workers"),
      Integer("resolve-ms", 5000, 100, kMost, "how often names of workers are resolved again"),
      Text("listen", "127.0.0.1:0", "HOST:PORT of the public API; port 0: a free one"),
      Text("admin-listen", "", "HOST:PORT of channelz; empty: none"),
      Integer("metrics-port", 0, 0, kMaxPort, "port of /metrics; 0: a free one"),
      Integer("max-queue", 1024, 1, kMost,
              "requests that wait for a worker before new ones are refused"),
      Integer("max-queue-tokens", 1 << 20, 1, kMost, "prompt tokens of them, likewise"),
      Integer("ttft-target-ms", 0, 0, kMost,
              "requests whose first token is predicted later are refused; 0: no target"),
      Integer("age-credit-ms", 60000, 0, 86400000,
              "a step of priority counts as so much waiting; equal on all routers"),
      Integer("default-max-tokens", 512, 1, kMost, "max_tokens of a request that names none"),
      Integer("max-attempts", 16, 1, kMost,
              "placements of one request that fail for other reasons than lack of room"),
      Integer("prompt-window", 32, 1, kMost,
              "requests without a first token that one worker may have"),
      Choice("placement", {"seconds", "least-work", "new-blocks"},
             "a prompt goes where it is predicted to be done first, cached tokens taken off; the "
             "others are for comparison"),
      Integer("cache-index-mb", 64, 1, 1 << 20, "MiB for what workers hold of prompts"),
      Integer("worker-silence-ms", 4000, 1, kMost,
              "a worker that says nothing for so long is lost"),
      Integer("client-buffer-bytes", 256 << 10, 1, kMost, "held for one client that reads slowly"),
      Integer("slow-client-timeout-ms", 30000, 1, kMost,
              "a client that takes nothing for so long ends"),
      Integer("client-keepalive-ms", 20000, 2, kMost,
              "a client whose connection answers nothing for so long is gone"),
      Integer("threads", 1, 1, kMost, "that tokenize"),
      Text("name", "router", "for people"),
      Text("ready-file", "", "written as one JSON line once every worker is connected"),
  };
}

void Append(const std::vector<std::string>& names, const std::vector<Option>& from,
            std::vector<Option>& to) {
  for (const std::string& name : names) {
    const auto is = [&](const Option& option) { return option.name == name; };
    if (std::none_of(to.begin(), to.end(), is)) {
      to.push_back(*std::find_if(from.begin(), from.end(), is));
    }
  }
}

std::vector<Option> UpOptions() {
  std::vector<Option> options = {
      Text("model", "", "GGUF file with weights and vocabulary"),
      Integer("prefill-workers", 1, 0, 1000, "how many; 0: the decode workers run prompts too"),
      Integer("decode-workers", 1, 1, 1000, "how many"),
      Integer("routers", 1, 1, 1000, "how many; the first has the port"),
      Integer("port", 0, 0, kMaxPort, "of the first router on 127.0.0.1; 0: a free one"),
      Text("listen", "", "HOST:PORT of the first router, instead of port"),
      Integer("metrics-port", 0, 0, kMaxPort, "/metrics of the first router; 0: a free one"),
      Text("ready-file", "", "written as one JSON line once a request would succeed"),
      Text("log-dir", "", "logs of the servers; empty: a directory that goes with the cluster"),
      Text("bin-dir", "", "where the servers are; empty: beside this program"),
  };
  Append(HandedToWorkers(), WorkerOptions(), options);
  Append(HandedToRouters(), RouterOptions(), options);
  return options;
}

absl::Status CheckListen(const Settings& settings, const std::string& name) {
  const std::string& value = settings.Text(name);
  if (value.empty() || ParseHostPort(value).ok()) return absl::OkStatus();
  return settings.Bad(name, "must be HOST:PORT with a port from 0 to 65535");
}

// /metrics is on the host of `listen`.
absl::Status CheckMetricsPort(const Settings& settings) {
  BATON_RETURN_IF_ERROR(CheckListen(settings, "listen"));
  const int64_t port = settings.Integer("metrics-port");
  const auto listen = ParseHostPort(settings.Text("listen"));
  if (port == 0 || !listen.ok() || listen->port != port) return absl::OkStatus();
  return settings.Bad("metrics-port", "must differ from the port of " + settings.Where("listen") +
                                          ", which is " + settings.Text("listen"));
}

absl::Status CheckAdvertise(const Settings& settings, const std::string& name) {
  const std::string& value = settings.Text(name);
  if (value.find(':') == std::string::npos || ParseHostPort(value).ok()) return absl::OkStatus();
  return settings.Bad(name, "must be HOST or HOST:PORT");
}

// Both listeners of a worker.
absl::Status CheckDataAddress(const Settings& settings) {
  BATON_RETURN_IF_ERROR(CheckListen(settings, "data-listen"));
  BATON_RETURN_IF_ERROR(CheckAdvertise(settings, "data-advertise"));
  const auto data = ParseHostPort(settings.Text("data-listen"));
  if (!data.ok() || data->port == 0 || settings.Text("data-listen") != settings.Text("listen")) {
    return absl::OkStatus();
  }
  return settings.Bad("data-listen", "must differ from " + settings.Where("listen"));
}

absl::Status CheckModelOptions(const Settings& settings) {
  const std::string& backend = settings.Text("backend");
  const std::string& kv_type = settings.Text("kv-type");
  const bool reference = backend == "reference";
  if (kv_type != "auto" && reference != (kv_type == "f64")) {
    const std::string has = reference ? "auto or f64" : "auto, f16 or int8";
    return settings.Bad(
        "kv-type", "must be " + has + ", because " + settings.Where("backend") + " is " + backend);
  }
  const int64_t block_size = settings.Integer("block-size");
  if ((block_size & (block_size - 1)) != 0) {
    return settings.Bad("block-size", "must be a power of two from 16 to 256");
  }
  if (settings.Integer("context") == 1) return settings.Bad("context", "must be 0 or at least 2");
  if (!settings.Text("affinity").empty()) {
    const auto cpus = ParseCpuList(settings.Text("affinity"));
    if (!cpus.ok()) return settings.Bad("affinity", std::string(cpus.status().message()));
  }
  return absl::OkStatus();
}

absl::Status CheckWorker(const Settings& settings) {
  if (settings.Text("listen").empty()) {
    return settings.Bad("listen", "must be HOST:PORT with a port from 0 to 65535");
  }
  BATON_RETURN_IF_ERROR(CheckMetricsPort(settings));
  BATON_RETURN_IF_ERROR(CheckAdvertise(settings, "advertise"));
  BATON_RETURN_IF_ERROR(CheckDataAddress(settings));
  return CheckModelOptions(settings);
}

absl::Status CheckWorkerAddresses(const Settings& settings) {
  std::set<std::string> seen;
  for (const char* const name : {"prefill-workers", "decode-workers"}) {
    for (const std::string& address : settings.List(name)) {
      const auto parsed = ParseHostPort(address);
      if (!parsed.ok() || parsed->port == 0) {
        return settings.Bad(name, address + " must be HOST:PORT with a port from 1 to 65535");
      }
      if (!seen.insert(address).second) {
        return settings.Bad(name,
                            "each worker must be named once in prefill-workers and "
                            "decode-workers together, not twice: " +
                                address);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRouter(const Settings& settings) {
  if (settings.Text("listen").empty()) {
    return settings.Bad("listen", "must be HOST:PORT with a port from 0 to 65535");
  }
  BATON_RETURN_IF_ERROR(CheckMetricsPort(settings));
  BATON_RETURN_IF_ERROR(CheckListen(settings, "admin-listen"));
  const auto admin = ParseHostPort(settings.Text("admin-listen"));
  if (admin.ok() && admin->port != 0 && settings.Text("admin-listen") == settings.Text("listen")) {
    return settings.Bad("admin-listen", "must differ from " + settings.Where("listen"));
  }
  return CheckWorkerAddresses(settings);
}

absl::Status CheckUp(const Settings& settings) {
  const int64_t port = settings.Integer("port");
  if (!settings.Text("listen").empty() && port != 0) {
    return settings.Bad(
        "port", settings.Where("listen") + " is " + settings.Text("listen") + "; give one of them");
  }
  BATON_RETURN_IF_ERROR(CheckMetricsPort(settings));
  if (port != 0 && port == settings.Integer("metrics-port")) {
    return settings.Bad("metrics-port", "must differ from " + settings.Where("port"));
  }
  BATON_RETURN_IF_ERROR(CheckAdvertise(settings, "advertise"));
  return CheckModelOptions(settings);
}

std::vector<Role> Roles() {
  return {{"up", "baton up", UpOptions(), {"model"}, CheckUp},
          {"router", "baton-router", RouterOptions(), {"model", "decode-workers"}, CheckRouter},
          {"prefill-worker", "baton-prefill-worker", WorkerOptions(), {"model"}, CheckWorker},
          {"decode-worker", "baton-decode-worker", WorkerOptions(), {"model"}, CheckWorker}};
}

}  // namespace

absl::StatusOr<Role> FindRole(const std::string& name) {
  std::string names;
  for (const Role& role : Roles()) {
    if (role.name == name) return role;
    names += (names.empty() ? "" : ", ") + role.name;
  }
  return absl::InvalidArgumentError("--role is " + name + "; must be one of " + names);
}

std::vector<std::string> Missing(const Role& role, const Settings& settings) {
  std::vector<std::string> missing;
  for (const std::string& name : role.required) {
    if (settings.Text(name).empty()) missing.push_back(name);
  }
  return missing;
}

const std::vector<std::string>& HandedToWorkers() {
  static const std::vector<std::string> kNames = {
      "transport",   "kv-blocks", "prefix-cache", "block-size", "context",
      "max-running", "max-queue", "step-tokens",  "lease-ms",   "threads",
      "affinity",    "backend",   "kv-type",      "advertise",  "reserve-patience-ms"};
  return kNames;
}

const std::vector<std::string>& HandedToRouters() {
  static const std::vector<std::string> kNames = {
      "max-queue",           "max-queue-tokens",    "ttft-target-ms",    "age-credit-ms",
      "default-max-tokens",  "prompt-window",       "worker-silence-ms", "slow-client-timeout-ms",
      "client-buffer-bytes", "client-keepalive-ms", "placement",         "cache-index-mb"};
  return kNames;
}

}  // namespace baton::config
