// A child process of `baton up`.
#ifndef BATON_CLIENT_PROCESS_H_
#define BATON_CLIENT_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::client {

struct ChildSpec {
  std::string program;
  std::vector<std::string> args;
  std::string log_path;  // takes its stdout and stderr
};

// Starts it with default signal handling. It gets SIGTERM when this process dies in any way.
// UNAVAILABLE when it cannot be started.
absl::StatusOr<pid_t> Spawn(const ChildSpec& spec);

// The last line that is not a JSON log line, else the last line; empty when there is none.
std::string LastErrorLine(const std::string& log_path);

// SIGTERM to all, then up to five seconds, then SIGKILL to those left. All are reaped.
void StopAll(const std::vector<pid_t>& pids);

}  // namespace baton::client

#endif  // BATON_CLIENT_PROCESS_H_
