#include "router/retry_times.h"

#include <algorithm>

namespace baton::router {

Time RetryTimes::AfterFailure(Time now) { return now + Pause(failures_++); }

Time RetryTimes::AfterNoRoom(Time submitted, Time now) {
  const Time again = submitted + Pause(refusals_);
  refusals_ = again > now ? refusals_ + 1 : 0;
  return std::max(again, now);
}

Duration RetryTimes::Pause(uint32_t doublings) const {
  return std::min(least_ * (1 << std::min<uint32_t>(doublings, 10)), most_);
}

}  // namespace baton::router
