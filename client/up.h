// baton up: a whole cluster on this machine.
#ifndef BATON_CLIENT_UP_H_
#define BATON_CLIENT_UP_H_

#include <string>
#include <vector>

namespace baton::client {

extern const char kUpUsage[];

// Options: common/config/roles.h. `argv0`: how this program was called; the servers are looked for
// beside it. Returns the exit code.
int Up(const std::string& argv0, const std::vector<std::string>& args);

}  // namespace baton::client

#endif  // BATON_CLIENT_UP_H_
