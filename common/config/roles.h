// The options of each program: the one table that the servers, `baton up` and `baton check-config`
// share.
#ifndef BATON_COMMON_CONFIG_ROLES_H_
#define BATON_COMMON_CONFIG_ROLES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/settings.h"

namespace baton::config {

struct Role {
  std::string name;     // "router", "prefill-worker", "decode-worker" or "up"
  std::string program;  // begins error lines: "baton-router"
  std::vector<Option> options;
  // Without these it cannot run; a file may leave them to the command line.
  std::vector<std::string> required;
  // Values that fit their own option but not each other or what they name; see Settings::Bad.
  absl::Status (*check)(const Settings&);
};

// INVALID_ARGUMENT lists the names there are.
absl::StatusOr<Role> FindRole(const std::string& name);

// Of `required`, what is empty.
std::vector<std::string> Missing(const Role& role, const Settings& settings);

// Options of `baton up` that it hands on as they are.
const std::vector<std::string>& HandedToWorkers();
const std::vector<std::string>& HandedToRouters();

}  // namespace baton::config

#endif  // BATON_COMMON_CONFIG_ROLES_H_
