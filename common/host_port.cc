#include "common/host_port.h"

#include <charconv>

#include "common/status_macros.h"

namespace baton {

absl::StatusOr<HostPort> ParseHostPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  HostPort out;
  const char* const begin = text.data() + (colon == std::string::npos ? text.size() : colon + 1);
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(begin, end, out.port);
  const bool good_port = begin != end && parsed.ec == std::errc{} && parsed.ptr == end &&
                         out.port >= 0 && out.port <= 65535;
  if (colon != std::string::npos) out.host = text.substr(0, colon);
  if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']') {
    out.host = out.host.substr(1, out.host.size() - 2);
  } else if (out.host == "[]" || out.host.find(':') != std::string::npos) {
    out.host.clear();
  }
  if (!good_port || out.host.empty()) {
    return absl::InvalidArgumentError("expected HOST:PORT, got \"" + text + "\"");
  }
  return out;
}

std::string JoinHostPort(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

absl::StatusOr<std::string> AdvertisedAddress(const std::string& advertise,
                                              const std::string& listen_host, int bound_port) {
  if (advertise.empty()) return JoinHostPort(listen_host, bound_port);
  if (advertise.find(':') == std::string::npos) return JoinHostPort(advertise, bound_port);
  BATON_RETURN_IF_ERROR(ParseHostPort(advertise).status());
  return advertise;
}

}  // namespace baton
