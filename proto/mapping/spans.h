// Spans of time as peers send them, in ranges that may be added to a clock or taken from it.
#ifndef BATON_PROTO_MAPPING_SPANS_H_
#define BATON_PROTO_MAPPING_SPANS_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/time.h"

namespace baton::proto {

// 146 years.
inline constexpr Duration kMaxSpan{int64_t{1} << 62};

// nullopt: longer than kMaxSpan.
inline std::optional<Duration> AgeFromPeer(uint64_t ns) {
  if (ns > static_cast<uint64_t>(kMaxSpan.count())) return std::nullopt;
  return Duration(static_cast<int64_t>(ns));
}

// Cut to kMaxSpan on both sides: a client may well say "in the year 2200".
inline Duration RemainingFromPeer(int64_t ns) {
  return std::clamp(Duration(ns), -kMaxSpan, kMaxSpan);
}

}  // namespace baton::proto

#endif  // BATON_PROTO_MAPPING_SPANS_H_
