// CPUs as in "0,2-3".
#ifndef BATON_COMMON_CPU_LIST_H_
#define BATON_COMMON_CPU_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

// CPU_SETSIZE of the C library.
inline constexpr unsigned kMaxCpus = 1024;

// Ascending in each range, as written. INVALID_ARGUMENT says what is expected; empty text is
// refused too.
absl::StatusOr<std::vector<unsigned>> ParseCpuList(const std::string& text);

}  // namespace baton

#endif  // BATON_COMMON_CPU_LIST_H_
