// How fast a full queue moves: prompt tokens that got their first token, per second in which
// somebody waited. Whatever holds the queue up (prefill, room for KV, another router's requests) is
// in the number; idle time is not.
#ifndef BATON_ROUTER_DRAIN_ESTIMATE_H_
#define BATON_ROUTER_DRAIN_ESTIMATE_H_

#include <cstdint>
#include <optional>

#include "common/time.h"

namespace baton::router {

// Owner thread: the core's.
class DrainEstimate {
 public:
  // Somebody waits from now on, or nobody does any more. Repeating it changes nothing.
  void SetWaiting(Time now, bool waiting);
  // A prompt of so many tokens got its first token.
  void OnFirstToken(Time now, uint64_t prompt_tokens);

  // Absent: measured on too little, or too long ago.
  std::optional<double> TokensPerSecond(Time now) const;

 private:
  void Pass(Time now);

  double tokens_ = 0;  // both fade
  double seconds_ = 0;
  uint64_t samples_ = 0;
  bool waiting_ = false;
  Time updated_;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_DRAIN_ESTIMATE_H_
