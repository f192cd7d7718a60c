#include "common/cpu_list.h"

#include <charconv>

namespace baton {

absl::StatusOr<std::vector<unsigned>> ParseCpuList(const std::string& text) {
  std::vector<unsigned> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  do {
    unsigned first = 0;
    auto parsed = std::from_chars(at, end, first);
    unsigned last = first;
    if (parsed.ec == std::errc{} && parsed.ptr < end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    }
    const bool ends = parsed.ptr == end || (*parsed.ptr == ',' && parsed.ptr + 1 < end);
    if (parsed.ec != std::errc{} || !ends || first > last || last >= kMaxCpus) {
      return absl::InvalidArgumentError("must be CPUs below " + std::to_string(kMaxCpus) +
                                        " as in 0,2-3");
    }
    for (unsigned cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    at = parsed.ptr == end ? end : parsed.ptr + 1;
  } while (at < end);
  return cpus;
}

}  // namespace baton
