#include "common/random.h"

#include <sys/random.h>

#include "common/check.h"

namespace baton {

uint64_t Random::Below(uint64_t bound) {
  BATON_CHECK(bound > 0);
  // Rejects the low values that would make small results likelier.
  const uint64_t reject_below = -bound % bound;
  while (true) {
    const uint64_t draw = Next64();
    if (draw >= reject_below) return draw % bound;
  }
}

double Random::Unit() { return static_cast<double>(Next64() >> 11) * 0x1.0p-53; }

uint64_t OsRandom::Next64() {
  uint64_t value = 0;
  // Up to 256 bytes are never cut short once the pool is up; without randomness there is no safe
  // identity to go on with.
  BATON_CHECK(getrandom(&value, sizeof value, 0) == sizeof value);
  return value;
}

uint64_t SeededRandom::Next64() {
  state_ += 0x9e3779b97f4a7c15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

Epoch NewEpoch(Random& random) {
  Epoch epoch;
  while (epoch.IsZero()) {
    epoch.hi = random.Next64();
    epoch.lo = random.Next64();
  }
  return epoch;
}

}  // namespace baton
