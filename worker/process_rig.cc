#include "worker/process_rig.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "common/host_port.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/grpc_stream.h"
#include "proto/mapping/decoder_state.h"
#include "proto/mapping/ids.h"
#include "worker/test_events.h"
#include "worker/worker_options.h"

namespace baton::worker {
namespace {

constexpr std::chrono::seconds kPatience{60};

std::string TempPath(const std::string& name) {
  static int next = 0;
  const char* const folder = std::getenv("TEST_TMPDIR");
  return std::string(folder == nullptr ? "/tmp" : folder) + "/" + name + "." +
         std::to_string(getpid()) + "." + std::to_string(next++);
}

// The child's end: never returns.
[[noreturn]] void Exec(const std::string& program, const std::vector<std::string>& args,
                       int stdout_fd, int stderr_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(stdout_fd, STDOUT_FILENO);
  dup2(stderr_fd, STDERR_FILENO);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  _exit(127);
}

std::string ReadLine(int fd) {
  std::string line;
  char c = 0;
  while (read(fd, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

std::string HttpGet(const std::string& address, const std::string& path) {
  const absl::StatusOr<HostPort> at = ParseHostPort(address);
  BATON_CHECK(at.ok());
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(at->port));
  inet_pton(AF_INET, at->host.c_str(), &to.sin_addr);
  std::string text;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
    const std::string request = "GET " + path + " HTTP/1.0\r\nHost: x\r\n\r\n";
    char buffer[65536];
    ssize_t n = write(fd, request.data(), request.size());
    while ((n = read(fd, buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return text;
}

// Kept for ever: gRPC joins its callback threads when the last channel of the process goes, and
// that must not happen in a callback of one of them.
v1::WorkerService::Stub* KeptStub(const std::string& address) {
  static auto* const kept = new std::vector<std::unique_ptr<v1::WorkerService::Stub>>;
  kept->push_back(
      v1::WorkerService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())));
  return kept->back().get();
}

}  // namespace

WorkerProcess::WorkerProcess(const std::string& role, const std::vector<std::string>& args)
    : stderr_path_(TempPath(role + ".stderr")) {
  const std::string program = role + "_worker/baton-" + role + "-worker";
  int ends[2];
  BATON_CHECK(pipe2(ends, O_CLOEXEC) == 0);
  const int stderr_fd = open(stderr_path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  pid_ = fork();
  if (pid_ == 0) Exec(program, args, ends[1], stderr_fd);
  close(ends[1]);
  close(stderr_fd);
  stdout_ = ends[0];
  const nlohmann::json ready = nlohmann::json::parse(ReadLine(stdout_), nullptr, false);
  if (!ready.is_object()) return;
  listen_ = ready.value("listen", "");
  metrics_ = ready.value("metrics", "");
  name_ = ready.value("name", "");
}

WorkerProcess::~WorkerProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGCONT);
    kill(pid_, SIGKILL);
    Wait();
  }
  close(stdout_);
  unlink(stderr_path_.c_str());
}

void WorkerProcess::Signal(int signal) { kill(pid_, signal); }

int WorkerProcess::Wait() {
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string WorkerProcess::StderrText() const {
  std::ifstream file(stderr_path_);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

double WorkerProcess::Metric(const std::string& sample) const {
  std::istringstream lines(HttpGet(metrics_, "/metrics"));
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, sample.size() + 1, sample + " ") == 0) {
      return std::strtod(line.c_str() + sample.size(), nullptr);
    }
  }
  return -1;
}

ProcessRouter::ProcessRouter(const WorkerProcess& worker, const Epoch& router)
    : router_(router), stub_(KeptStub(worker.listen())), loop_({}) {
  loop_.Start();
  loop_.Post([this] {
    stream_ = rpc::OpenStream<v1::SessionRequest, v1::SessionResponse>(
        loop_, this,
        [this](auto* context, auto* reactor) { stub_->async()->Session(context, reactor); },
        [this] {
          MutexLock lock(mutex_);
          call_over_ = true;
          changed_.NotifyAll();
        });
    v1::SessionRequest request;
    proto::Set(router_, *request.mutable_hello()->mutable_router_epoch());
    request.mutable_hello()->set_session_number(1);
    request.mutable_hello()->set_protocol_version(kProtocolVersion);
    stream_->Send(request);
    Beat();
  });
  MutexLock lock(mutex_);
  while (!said_hello_ && !closed_) changed_.Wait(mutex_);
}

ProcessRouter::~ProcessRouter() {
  loop_.Post([this] {
    beat_.Cancel();
    stream_.reset();
  });
  {
    MutexLock lock(mutex_);
    while (!call_over_) changed_.Wait(mutex_);
  }
  loop_.Stop();
}

void ProcessRouter::Beat() {
  beat_ = loop_.PostAfter(std::chrono::seconds(1), [this] {
    v1::SessionRequest request;
    request.mutable_heartbeat();
    stream_->Send(request);
    Beat();
  });
}

v1::Sink ProcessRouter::AsSink() const {
  v1::Sink sink;
  sink.set_address(hello_.transfer_address());
  *sink.mutable_epoch() = hello_.worker_epoch();
  return sink;
}

absl::Status ProcessRouter::Submit(const DecoderState& state, const std::vector<v1::Sink>& sinks) {
  v1::SubmitRequest request;
  *request.mutable_state() = proto::ToProto(state);
  request.set_session_number(1);
  request.set_submit_number(++submits_);
  *request.mutable_worker_epoch() = hello_.worker_epoch();
  for (const v1::Sink& sink : sinks) *request.add_sinks() = sink;
  grpc::ClientContext context;
  v1::SubmitResponse response;
  return rpc::FromGrpc(stub_->Submit(&context, request, &response));
}

void ProcessRouter::Send(const v1::SessionRequest& request) {
  loop_.Post([this, request] {
    if (stream_ != nullptr) stream_->Send(request);
  });
}

void ProcessRouter::Attach(const AttemptId& attempt) {
  v1::SessionRequest request;
  proto::Set(attempt, *request.mutable_attach()->mutable_attempt());
  Send(request);
}

void ProcessRouter::Cancel(const AttemptId& attempt) {
  v1::SessionRequest request;
  proto::Set(attempt, *request.mutable_cancel()->mutable_attempt());
  Send(request);
}

std::vector<v1::WorkerEvent> ProcessRouter::EventsOf(const AttemptId& attempt) {
  MutexLock lock(mutex_);
  std::vector<v1::WorkerEvent> out;
  for (const v1::WorkerEvent& event : events_) {
    if (AttemptOf(event) == attempt) out.push_back(event);
  }
  return out;
}

bool ProcessRouter::WaitFor(const AttemptId& attempt,
                            const std::function<bool(const std::vector<v1::WorkerEvent>&)>& done) {
  const Time deadline = SteadyNow() + kPatience;
  size_t seen = 0;
  while (true) {
    if (done(EventsOf(attempt))) return true;
    MutexLock lock(mutex_);
    while (events_.size() == seen && !closed_) {
      if (!changed_.WaitUntil(mutex_, deadline)) return false;
    }
    if (closed_ && events_.size() == seen) return false;
    seen = events_.size();
  }
}

std::vector<TokenId> ProcessRouter::Tokens(const AttemptId& attempt) {
  WaitFor(attempt, [](const std::vector<v1::WorkerEvent>& events) {
    if (events.empty()) return false;
    const v1::WorkerEvent& last = events.back();
    return last.has_lost() || last.has_failed() || last.has_no_room() ||
           (last.has_token() && last.token().finish_reason() != v1::FINISH_REASON_UNSPECIFIED);
  });
  std::vector<TokenId> tokens;
  for (const v1::WorkerEvent& event : EventsOf(attempt)) {
    if (event.has_token()) tokens.push_back(event.token().token());
  }
  return tokens;
}

bool ProcessRouter::WaitClosed() {
  const Time deadline = SteadyNow() + kPatience;
  MutexLock lock(mutex_);
  while (!closed_) {
    if (!changed_.WaitUntil(mutex_, deadline)) return false;
  }
  return true;
}

void ProcessRouter::set_on_event(std::function<void(const v1::WorkerEvent&)> on_event) {
  MutexLock lock(mutex_);
  on_event_ = std::move(on_event);
}

void ProcessRouter::OnMessage(v1::SessionResponse message) {
  std::function<void(const v1::WorkerEvent&)> on_event;
  {
    MutexLock lock(mutex_);
    on_event = on_event_;
  }
  for (const v1::WorkerEvent& event : message.events()) {
    if (on_event) on_event(event);
    MutexLock lock(mutex_);
    if (event.has_hello()) {
      hello_ = event.hello();
      said_hello_ = true;
    }
    events_.push_back(event);
  }
  changed_.NotifyAll();
}

void ProcessRouter::OnClosed(absl::Status /*status*/) {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

}  // namespace baton::worker
