// When a request is placed again after an attempt that came to nothing.
#ifndef BATON_ROUTER_RETRY_TIMES_H_
#define BATON_ROUTER_RETRY_TIMES_H_

#include <cstdint>

#include "common/time.h"

namespace baton::router {

// Of one request. Plain value.
class RetryTimes {
 public:
  RetryTimes(Duration least, Duration most) : least_(least), most_(most) {}

  // A pause from now on, which doubles with every failure.
  Time AfterFailure(Time now);
  // A pause from when the attempt was submitted: whoever stood in a worker's queue has waited
  // already. It doubles with every refusal in a row that came sooner than it.
  Time AfterNoRoom(Time submitted, Time now);

  uint32_t failures() const { return failures_; }

 private:
  Duration Pause(uint32_t doublings) const;

  Duration least_;
  Duration most_;
  uint32_t failures_ = 0;
  uint32_t refusals_ = 0;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_RETRY_TIMES_H_
