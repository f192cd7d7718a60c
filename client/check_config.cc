#include "client/check_config.h"

#include <iostream>

#include "absl/status/statusor.h"
#include "client/arguments.h"
#include "common/config/roles.h"
#include "common/config/settings.h"
#include "common/status_macros.h"

namespace baton::client {

const char kCheckConfigUsage[] =
    "baton check-config FILE [--role up|router|prefill-worker|decode-worker]\n"
    "    whether --config FILE would be accepted; the role is up unless given\n";

namespace {

struct Asked {
  std::string path;
  config::Role role;
};

absl::StatusOr<Asked> Parse(const std::vector<std::string>& args) {
  std::string path;
  std::vector<std::string> flags;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].starts_with("--")) {
      flags.push_back(args[i]);
      if (args[i] == "--role" && i + 1 < args.size()) flags.push_back(args[++i]);
    } else if (path.empty()) {
      path = args[i];
    } else {
      return absl::InvalidArgumentError("unexpected argument: " + args[i]);
    }
  }
  if (path.empty()) return absl::InvalidArgumentError("FILE: missing");
  BATON_ASSIGN_OR_RETURN(const Arguments parsed, Arguments::Parse(flags, {"role"}, {}));
  BATON_ASSIGN_OR_RETURN(config::Role role, config::FindRole(parsed.Get("role", "up")));
  return Asked{std::move(path), std::move(role)};
}

}  // namespace

int CheckConfig(const std::vector<std::string>& args) {
  const absl::StatusOr<Asked> asked = Parse(args);
  if (!asked.ok()) {
    std::cerr << "error: " << asked.status().message() << "\n" << kCheckConfigUsage;
    return 2;
  }
  config::Settings settings(asked->role.options);
  absl::Status status = settings.TakeFile(asked->path);
  if (status.ok()) status = asked->role.check(settings);
  if (!status.ok()) {
    std::cerr << status.message() << std::endl;
    return 1;
  }
  std::cout << asked->path << ": ok for " << asked->role.program;
  for (const std::string& name : config::Missing(asked->role, settings)) {
    std::cout << "; needs --" << name;
  }
  std::cout << std::endl;
  return 0;
}

}  // namespace baton::client
