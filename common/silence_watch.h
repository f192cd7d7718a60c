// Notices that a peer has said nothing for too long, by time in which we could have heard it.
#ifndef BATON_COMMON_SILENCE_WATCH_H_
#define BATON_COMMON_SILENCE_WATCH_H_

#include <functional>

#include "common/executor.h"
#include "common/time.h"

namespace baton {

// A process that stands still (it is stopped, its machine is paused, others have the processors)
// hears nothing, and its timers run before what its peers have sent meanwhile is read. So silence
// is summed up over looks, four in the limit: one that comes late by the time between two or more
// counts as a quarter of that time. Never does a standstill alone end the silence, and what was
// sent is read before the next look; a process all of whose looks are late still notices, after 16
// of them.
//
// Owner thread: the executor's.
class SilenceWatch {
 public:
  // Begins at once. `on_silent` is called once, when nothing has been heard for `limit`; it may
  // destroy this object.
  SilenceWatch(Executor& executor, Duration limit, std::function<void()> on_silent);
  SilenceWatch(const SilenceWatch&) = delete;
  SilenceWatch& operator=(const SilenceWatch&) = delete;

  // The peer said something.
  void Heard();

 private:
  void Look();
  void LookAgain();

  Executor& executor_;
  const Duration limit_;
  const Duration step_;
  std::function<void()> on_silent_;
  Duration silence_{0};  // until counted_
  Time counted_;
  TimerHandle look_;
};

}  // namespace baton

#endif  // BATON_COMMON_SILENCE_WATCH_H_
