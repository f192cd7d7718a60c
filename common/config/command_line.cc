#include "common/config/command_line.h"

#include <iostream>

#include "common/check.h"
#include "common/status_macros.h"

namespace baton::config {
namespace {

std::vector<Option> WithCommon(std::vector<Option> options) {
  Option file = Text("config", "", "JSON file of these options by name; flags go over it");
  file.in_file = false;
  options.push_back(std::move(file));
  options.push_back(Switch("print-config", "prints what is in force, as such a file, and ends"));
  options.push_back(Switch("help", "prints this and ends"));
  return options;
}

absl::Status Fill(const Role& role, const std::vector<std::string>& arguments, Settings& out) {
  BATON_RETURN_IF_ERROR(out.TakeArguments(arguments));
  if (out.IsSet("help")) return absl::OkStatus();
  if (out.IsSet("config")) BATON_RETURN_IF_ERROR(out.TakeFile(out.Text("config")));
  BATON_RETURN_IF_ERROR(role.check(out));
  const std::vector<std::string> missing = Missing(role, out);
  if (!missing.empty() && !out.IsSet("print-config")) {
    return absl::InvalidArgumentError("--" + missing.front() + ": missing");
  }
  return absl::OkStatus();
}

}  // namespace

CommandLine ReadCommandLine(const Role& role, const std::vector<std::string>& arguments) {
  CommandLine out{Settings(WithCommon(role.options)), std::nullopt};
  const absl::Status status = Fill(role, arguments, out.settings);
  if (!status.ok()) {
    std::cerr << role.program + ": " + std::string(status.message()) + "\n";
    out.exit_code = kExitBadConfig;
  } else if (out.settings.IsSet("help")) {
    std::cout << role.program << " [flags]\n" << out.settings.Usage() << std::flush;
    out.exit_code = 0;
  } else if (out.settings.IsSet("print-config")) {
    std::cout << out.settings.ToJson() << std::flush;
    out.exit_code = 0;
  }
  return out;
}

CommandLine ReadCommandLine(const std::string& role, int argc, char** argv) {
  const absl::StatusOr<Role> found = FindRole(role);
  BATON_CHECK(found.ok());
  return ReadCommandLine(*found, std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}

}  // namespace baton::config
