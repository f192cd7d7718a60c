#include "common/clock.h"

namespace baton {

Time SteadyNow() {
  return Time(
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

std::chrono::nanoseconds SystemWallClock::SinceEpoch() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch());
}

}  // namespace baton
