// "HOST:PORT" and "[IPV6]:PORT".
#ifndef BATON_COMMON_HOST_PORT_H_
#define BATON_COMMON_HOST_PORT_H_

#include <string>

#include "absl/status/statusor.h"

namespace baton {

struct HostPort {
  std::string host;  // without brackets
  int port = 0;
};

// INVALID_ARGUMENT naming the text.
absl::StatusOr<HostPort> ParseHostPort(const std::string& text);
std::string JoinHostPort(const std::string& host, int port);

// What others are told: `advertise` as given, with the bound port where it names none; empty: the
// host we listen on.
absl::StatusOr<std::string> AdvertisedAddress(const std::string& advertise,
                                              const std::string& listen_host, int bound_port);

}  // namespace baton

#endif  // BATON_COMMON_HOST_PORT_H_
