// baton check-config: whether a file would be accepted by --config.
#ifndef BATON_CLIENT_CHECK_CONFIG_H_
#define BATON_CLIENT_CHECK_CONFIG_H_

#include <string>
#include <vector>

namespace baton::client {

extern const char kCheckConfigUsage[];

// Exit code 0 when it would be, with a line that names what it leaves to the command line; 1 with
// one line on stderr when not; 2 for a command line that is wrong itself.
int CheckConfig(const std::vector<std::string>& args);

}  // namespace baton::client

#endif  // BATON_CLIENT_CHECK_CONFIG_H_
