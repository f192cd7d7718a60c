#include "client/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include "common/clock.h"

namespace baton::client {
namespace {

// In the child; only async-signal-safe calls.
[[noreturn]] void Exec(char* const* argv, int log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(argv[0], argv);
  const char* why = strerrordesc_np(errno);
  (void)!write(STDERR_FILENO, why, std::strlen(why));
  _exit(127);
}

bool Reap(std::vector<pid_t>& pids) {
  std::erase_if(pids, [](pid_t pid) {
    const pid_t got = waitpid(pid, nullptr, WNOHANG);
    return got == pid || (got < 0 && errno == ECHILD);
  });
  return pids.empty();
}

}  // namespace

absl::StatusOr<pid_t> Spawn(const ChildSpec& spec) {
  const int log = open(spec.log_path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return absl::UnavailableError(spec.log_path + ": " + std::strerror(errno));
  std::vector<char*> argv = {const_cast<char*>(spec.program.c_str())};
  for (const std::string& arg : spec.args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Exec(argv.data(), log, parent);
  close(log);
  if (pid < 0) return absl::UnavailableError(std::string("fork: ") + std::strerror(errno));
  return pid;
}

std::string LastErrorLine(const std::string& log_path) {
  std::ifstream file(log_path);
  std::string line, last, last_plain;
  while (std::getline(file, line)) {
    if (line.empty()) continue;
    last = line;
    if (line[0] != '{') last_plain = line;
  }
  return last_plain.empty() ? last : last_plain;
}

void StopAll(const std::vector<pid_t>& pids) {
  std::vector<pid_t> left = pids;
  Reap(left);
  for (const pid_t pid : left) {
    kill(pid, SIGTERM);
    kill(pid, SIGCONT);  // a stopped one must run to end
  }
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  const Time limit = SteadyNow() + std::chrono::seconds(5);
  while (!Reap(left) && SteadyNow() < limit) {
    const timespec wait = {0, 50'000'000};
    sigtimedwait(&child, nullptr, &wait);
  }
  for (const pid_t pid : left) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

}  // namespace baton::client
