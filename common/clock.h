// The only place that reads the machine's clocks. Cores ask their Executor instead.
#ifndef BATON_COMMON_CLOCK_H_
#define BATON_COMMON_CLOCK_H_

#include <chrono>

#include "common/time.h"

namespace baton {

// This process's monotonic clock.
Time SteadyNow();

// For logs and for people; nothing is decided by it.
class WallClock {
 public:
  virtual ~WallClock() = default;
  // Since 1970 UTC. Thread-safe.
  virtual std::chrono::nanoseconds SinceEpoch() const = 0;
};

class SystemWallClock : public WallClock {
 public:
  std::chrono::nanoseconds SinceEpoch() const override;
};

}  // namespace baton

#endif  // BATON_COMMON_CLOCK_H_
