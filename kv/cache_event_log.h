// The latest events of a cache, numbered, for readers that come at their own pace.
#ifndef BATON_KV_CACHE_EVENT_LOG_H_
#define BATON_KV_CACHE_EVENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "kv/cache_event.h"

namespace baton::kv {

// Owner thread: the cache's.
class CacheEventLog {
 public:
  // Keeps at most so many; older ones are forgotten, which readers that missed them see as a gap.
  explicit CacheEventLog(size_t capacity) : capacity_(capacity) {}

  void Add(const CacheEvent& event);
  // Of the event that comes next; the first is 1.
  uint64_t next_sequence() const { return first_ + events_.size(); }
  // Events from number `from` on, or from the oldest kept, at most `most`.
  CacheEventBatch From(uint64_t from, size_t most) const;

 private:
  const size_t capacity_;
  uint64_t first_ = 1;
  std::deque<CacheEvent> events_;
};

}  // namespace baton::kv

#endif  // BATON_KV_CACHE_EVENT_LOG_H_
