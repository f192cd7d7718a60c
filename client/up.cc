#include "client/up.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/status/statusor.h"
#include "client/process.h"
#include "common/check.h"
#include "common/config/command_line.h"
#include "common/config/roles.h"
#include "common/config/settings.h"
#include "common/status_macros.h"

namespace baton::client {

const char kUpUsage[] =
    "baton up --model F [--prefill-workers N] [--decode-workers N] [--routers N] [--port P]\n"
    "    [--transport auto|shm|tcp] [--ready-file F] [--log-dir D] [--bin-dir D]\n"
    "    [--kv-blocks N] [--block-size N] [--prefix-cache on|off] [--context N] [--max-running N]\n"
    "    [--max-queue N] [--default-max-tokens N] [--step-tokens N] [--lease-ms N] [--threads N] "
    "[--affinity "
    "CPUS]\n"
    "    [--backend B] [--kv-type T] [--listen HOST:PORT] [--advertise HOST] [--metrics-port P]\n"
    "    [--config F] [--print-config] [--help]\n";

namespace {

namespace fs = std::filesystem;
using config::Settings;
using nlohmann::json;

struct Server {
  std::string kind;  // "prefill-worker", "decode-worker", "router"
  std::string name;
  pid_t pid = 0;
  std::string ready_path;
  std::string log_path;
  json ready;  // null until its ready file is there
};

fs::path DirectoryOfServers(const std::string& argv0, const Settings& settings) {
  if (!settings.Text("bin-dir").empty()) return settings.Text("bin-dir");
  std::vector<fs::path> candidates;
  // Not resolved: bin/ holds links to what lies elsewhere.
  if (argv0.find('/') != std::string::npos) candidates.push_back(fs::path(argv0).parent_path());
  const char* path = std::getenv("PATH");
  std::istringstream dirs(path != nullptr ? path : "");
  for (std::string dir; argv0.find('/') == std::string::npos && std::getline(dirs, dir, ':');) {
    if (fs::exists(fs::path(dir) / argv0)) candidates.push_back(dir);
  }
  std::error_code error;
  candidates.push_back(fs::read_symlink("/proc/self/exe", error).parent_path());
  for (const fs::path& dir : candidates) {
    if (fs::exists(dir / "baton-router")) return dir;
  }
  return candidates.front();
}

class Cluster {
 public:
  Cluster(Settings settings, fs::path bin) : settings_(std::move(settings)), bin_(std::move(bin)) {}
  ~Cluster() {
    std::vector<pid_t> routers, workers;
    for (const Server& server : servers_) {
      if (server.pid > 0) (server.kind == "router" ? routers : workers).push_back(server.pid);
    }
    StopAll(routers);
    StopAll(workers);
    std::error_code ignored;
    if (!run_dir_.empty()) fs::remove_all(run_dir_, ignored);
    if (!settings_.Text("ready-file").empty()) fs::remove(settings_.Text("ready-file"), ignored);
  }
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  absl::Status Start() {
    sigemptyset(&signals_);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&signals_, signal);
    sigprocmask(SIG_BLOCK, &signals_, nullptr);
    BATON_RETURN_IF_ERROR(MakeDirectories());
    const int64_t prefill = settings_.Integer("prefill-workers");
    const int64_t decode = settings_.Integer("decode-workers");
    const int64_t routers = settings_.Integer("routers");
    for (int64_t i = 0; i < prefill; ++i) BATON_RETURN_IF_ERROR(StartWorker("prefill", i));
    for (int64_t i = 0; i < decode; ++i) BATON_RETURN_IF_ERROR(StartWorker("decode", i));
    BATON_RETURN_IF_ERROR(WaitUntilReady());
    for (int64_t i = 0; i < routers; ++i) BATON_RETURN_IF_ERROR(StartRouter(i));
    BATON_RETURN_IF_ERROR(WaitUntilReady());
    return WriteReadyFile();
  }

  // Until a signal asks to stop. What dies is reported, not restarted.
  void Watch() {
    for (;;) {
      const int signal = sigwaitinfo(&signals_, nullptr);
      if (signal == SIGCHLD) {
        if (Server* dead = ReapOne()) {
          std::cerr << "baton up: " << dead->name << " ended: " << LastErrorLine(dead->log_path)
                    << std::endl;
        }
      } else if (signal > 0) {
        return;
      }
    }
  }

  bool asked_to_stop() const { return asked_to_stop_; }

 private:
  absl::Status MakeDirectories() {
    std::string pattern = (fs::temp_directory_path() / "baton-up-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      return absl::UnavailableError("cannot make a directory in " +
                                    fs::temp_directory_path().string());
    }
    run_dir_ = pattern;
    log_dir_ = settings_.Text("log-dir").empty() ? run_dir_ : settings_.Text("log-dir");
    std::error_code error;
    fs::create_directories(log_dir_, error);
    if (error) return absl::UnavailableError("--log-dir: " + error.message());
    return absl::OkStatus();
  }

  // Options go to servers with underscores, which both flag spellings accept.
  static std::string Flag(std::string name, const std::string& value) {
    for (char& c : name) {
      if (c == '-') c = '_';
    }
    return "--" + name + "=" + value;
  }

  absl::Status StartServer(const std::string& kind, const std::string& name,
                           const std::vector<std::string>& handed_on,
                           std::vector<std::string> arguments) {
    Server server;
    server.kind = kind;
    server.name = name;
    server.ready_path = (fs::path(run_dir_) / (name + ".ready")).string();
    server.log_path = (fs::path(log_dir_) / (name + ".log")).string();
    arguments.push_back(Flag("model", settings_.Text("model")));
    arguments.push_back(Flag("name", name));
    arguments.push_back(Flag("ready-file", server.ready_path));
    for (const std::string& flag : handed_on) {
      if (settings_.IsSet(flag)) arguments.push_back(Flag(flag, settings_.Text(flag)));
    }
    const std::string program = (bin_ / ("baton-" + kind)).string();
    if (!fs::exists(program)) return absl::NotFoundError(program + " is not there");
    BATON_ASSIGN_OR_RETURN(server.pid, Spawn({program, std::move(arguments), server.log_path}));
    servers_.push_back(std::move(server));
    return absl::OkStatus();
  }

  absl::Status StartWorker(const std::string& role, int64_t index) {
    return StartServer(role + "-worker", role + "-" + std::to_string(index),
                       config::HandedToWorkers(), {Flag("listen", "127.0.0.1:0")});
  }

  absl::Status StartRouter(int64_t index) {
    const std::string listen = settings_.IsSet("listen") ? settings_.Text("listen")
                                                         : "127.0.0.1:" + settings_.Text("port");
    std::string prefill, decode;
    for (const Server& server : servers_) {
      if (server.kind == "router") continue;
      std::string& list = server.kind == "prefill-worker" ? prefill : decode;
      list += (list.empty() ? "" : ",") + server.ready.at("listen").get<std::string>();
    }
    std::vector<std::string> arguments = {Flag("listen", index == 0 ? listen : "127.0.0.1:0"),
                                          Flag("prefill-workers", prefill),
                                          Flag("decode-workers", decode)};
    if (index == 0 && settings_.IsSet("metrics-port")) {
      arguments.push_back(Flag("metrics-port", settings_.Text("metrics-port")));
    }
    return StartServer("router", "router-" + std::to_string(index), config::HandedToRouters(),
                       std::move(arguments));
  }

  // Returns the one that ended; null when none did.
  Server* ReapOne() {
    for (Server& server : servers_) {
      if (server.pid > 0 && waitpid(server.pid, nullptr, WNOHANG) == server.pid) {
        server.pid = 0;
        return &server;
      }
    }
    return nullptr;
  }

  bool TakeReadyFiles() {
    bool all = true;
    for (Server& server : servers_) {
      if (!server.ready.is_null()) continue;
      std::ifstream file(server.ready_path);
      const json ready = file ? json::parse(file, nullptr, false) : json();
      if (ready.is_object() && ready.contains("listen")) {
        server.ready = ready;
      } else {
        all = false;
      }
    }
    return all;
  }

  absl::Status WaitUntilReady() {
    while (!TakeReadyFiles()) {
      const timespec wait = {0, 10'000'000};
      const int signal = sigtimedwait(&signals_, nullptr, &wait);
      if (signal > 0 && signal != SIGCHLD) {
        asked_to_stop_ = true;
        return absl::CancelledError("stopped while starting");
      }
      if (const Server* dead = ReapOne()) {
        return absl::UnavailableError(dead->name +
                                      " did not start: " + LastErrorLine(dead->log_path));
      }
    }
    return absl::OkStatus();
  }

  absl::Status WriteReadyFile() const {
    json out = {{"workers", json::array()}, {"routers", json::array()}, {"log_dir", log_dir_}};
    for (const Server& server : servers_) {
      json entry = server.ready;
      entry["name"] = server.name;
      entry["pid"] = server.pid;
      if (server.kind == "router") {
        if (!out.contains("target")) out["target"] = entry["listen"];
        out["routers"].push_back(std::move(entry));
      } else {
        out["workers"].push_back(std::move(entry));
      }
    }
    std::cout << "ready: " << out["target"].get<std::string>() << std::endl;
    if (settings_.Text("ready-file").empty()) return absl::OkStatus();
    const std::string path = settings_.Text("ready-file");
    const std::string partial = path + ".partial";
    std::ofstream(partial) << out.dump() << "\n";
    if (std::rename(partial.c_str(), path.c_str()) != 0) {
      return absl::UnavailableError("--ready-file: cannot write " + path);
    }
    return absl::OkStatus();
  }

  const Settings settings_;
  const fs::path bin_;
  sigset_t signals_;
  std::string run_dir_;
  std::string log_dir_;
  std::vector<Server> servers_;
  bool asked_to_stop_ = false;
};

}  // namespace

int Up(const std::string& argv0, const std::vector<std::string>& argv) {
  const auto role = config::FindRole("up");
  BATON_CHECK(role.ok());
  const config::CommandLine command_line = config::ReadCommandLine(*role, argv);
  if (command_line.exit_code.has_value()) return *command_line.exit_code;
  const Settings& settings = command_line.settings;
  Cluster cluster(settings, DirectoryOfServers(argv0, settings));
  const absl::Status status = cluster.Start();
  if (!status.ok()) {
    if (cluster.asked_to_stop()) return 0;
    std::cerr << "baton up: " << status.message() << std::endl;
    return 1;
  }
  cluster.Watch();
  return 0;
}

}  // namespace baton::client
