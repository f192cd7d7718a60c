// Identities that cross processes (DESIGN section 5).
#ifndef BATON_COMMON_IDS_H_
#define BATON_COMMON_IDS_H_

#include <array>
#include <compare>
#include <cstdint>
#include <cstdio>
#include <string>

namespace baton {

// 128 random bits drawn once per process start. Compared for equality; the order exists only so
// that ids can key ordered maps (cores never iterate unordered containers).
struct Epoch {
  uint64_t hi = 0;
  uint64_t lo = 0;
  auto operator<=>(const Epoch&) const = default;
  bool IsZero() const { return hi == 0 && lo == 0; }
  std::string ToString() const {
    char text[33];
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hi),
                  static_cast<unsigned long long>(lo));
    return text;
  }
};

// One placement of one request. Every placement gets a new `attempt`.
struct AttemptId {
  Epoch router;
  uint64_t request = 0;
  uint32_t attempt = 0;
  auto operator<=>(const AttemptId&) const = default;
  // Safe for logs: the request number and attempt, and eight digits of the router's epoch.
  std::string ToString() const {
    return router.ToString().substr(0, 8) + "-" + std::to_string(request) + "." +
           std::to_string(attempt);
  }
};

// Opaque 128-bit digests (XXH3-128 of a canonical description).
struct Digest {
  uint64_t hi = 0;
  uint64_t lo = 0;
  auto operator<=>(const Digest&) const = default;
};

}  // namespace baton

#endif  // BATON_COMMON_IDS_H_
