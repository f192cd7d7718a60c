// "N" or "A..B": how long a prompt or an answer is.
#ifndef BATON_CLIENT_BENCH_LENGTHS_H_
#define BATON_CLIENT_BENCH_LENGTHS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/random.h"

namespace baton::client {

inline constexpr uint32_t kMaxLength = 1'000'000;

struct Lengths {
  uint32_t least = 1;
  uint32_t most = 1;  // included

  // Uniform. Draws nothing when there is one length only.
  uint32_t Draw(Random& random) const;
};

// 1 <= A <= B <= kMaxLength; INVALID_ARGUMENT names `flag`, the text and the limit.
absl::StatusOr<Lengths> ParseLengths(const std::string& flag, const std::string& text);

}  // namespace baton::client

#endif  // BATON_CLIENT_BENCH_LENGTHS_H_
