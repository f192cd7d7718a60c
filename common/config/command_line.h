// From a program's arguments to its settings: --config, --print-config, --help and every refusal.
#ifndef BATON_COMMON_CONFIG_COMMAND_LINE_H_
#define BATON_COMMON_CONFIG_COMMAND_LINE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/config/roles.h"
#include "common/config/settings.h"

namespace baton::config {

// Of a command line that is wrong, or of a file that it names.
inline constexpr int kExitBadConfig = 2;

struct CommandLine {
  Settings settings;
  // The program ends with it; what was asked for, or one line of error, has been printed.
  std::optional<int> exit_code;
};

CommandLine ReadCommandLine(const Role& role, const std::vector<std::string>& arguments);
// For a server's main.
CommandLine ReadCommandLine(const std::string& role, int argc, char** argv);

}  // namespace baton::config

#endif  // BATON_COMMON_CONFIG_COMMAND_LINE_H_
