// Monotonic time as cores see it. A core never reads a clock itself: it asks its Executor.
#ifndef BATON_COMMON_TIME_H_
#define BATON_COMMON_TIME_H_

#include <chrono>

namespace baton {

using Duration = std::chrono::nanoseconds;

// Tag clock: a Time compares and subtracts only with Times of the same process (or simulated node).
struct MonotonicClock {
  using duration = Duration;
  using rep = Duration::rep;
  using period = Duration::period;
  using time_point = std::chrono::time_point<MonotonicClock, Duration>;
  static constexpr bool is_steady = true;
};
using Time = MonotonicClock::time_point;

inline double ToSeconds(Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace baton

#endif  // BATON_COMMON_TIME_H_
