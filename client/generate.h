// baton generate: one request against a router.
#ifndef BATON_CLIENT_GENERATE_H_
#define BATON_CLIENT_GENERATE_H_

#include <string>
#include <vector>

namespace baton::client {

extern const char kGenerateUsage[];

// The exit code: 0, 1 when the request failed, 2 for bad flags.
int Generate(const std::vector<std::string>& args);

}  // namespace baton::client

#endif  // BATON_CLIENT_GENERATE_H_
