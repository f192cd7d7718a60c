#include "kv/cache_event_log.h"

#include <algorithm>
#include <cstddef>

namespace baton::kv {

void CacheEventLog::Add(const CacheEvent& event) {
  if (events_.size() == capacity_) {
    events_.pop_front();
    ++first_;
  }
  events_.push_back(event);
}

CacheEventBatch CacheEventLog::From(uint64_t from, size_t most) const {
  CacheEventBatch batch;
  batch.first_sequence = std::clamp(from, first_, next_sequence());
  const size_t begin = batch.first_sequence - first_;
  const size_t count = std::min(most, events_.size() - begin);
  const auto at = events_.begin() + static_cast<std::ptrdiff_t>(begin);
  batch.events.assign(at, at + static_cast<std::ptrdiff_t>(count));
  return batch;
}

}  // namespace baton::kv
