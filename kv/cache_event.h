// What a worker's prefix cache gains and loses, as told to routers.
#ifndef BATON_KV_CACHE_EVENT_H_
#define BATON_KV_CACHE_EVENT_H_

#include <cstdint>
#include <vector>

#include "common/ids.h"

namespace baton::kv {

// Of one full block, named as in kv/block_hash.h. A block is stored after its parent and removed
// before it.
struct CacheEvent {
  enum class Action : uint8_t { kStored, kRemoved };
  Action action = Action::kStored;
  uint32_t ordinal = 0;  // 0: the first block of its chain
  Digest hash;
  Digest parent;  // hash of the block before it; RootHash of its namespace for the first
  bool operator==(const CacheEvent&) const = default;
};

// Every change of a cache has a number; they count up by one. A batch that does not begin where the
// one before it ended shows a gap: what is known of this cache is to be asked for again.
struct CacheEventBatch {
  uint64_t first_sequence = 0;  // of events.front(); of the next one when there are none
  std::vector<CacheEvent> events;
  uint64_t next_sequence() const { return first_sequence + events.size(); }
};

// A page of what a cache holds. Pages are taken one after the other while events go on: whoever
// puts a worker's cache together applies the events from the first page's `as_of` on as well, and
// both are idempotent.
struct CacheSnapshotPage {
  uint32_t begin = 0;              // where this page begins, as it was asked for
  uint64_t as_of = 0;              // sequence of the first event that is not in this page
  std::vector<CacheEvent> blocks;  // kStored each, in no order
  uint32_t next = 0;               // where the next page begins; 0: this is the last
};

}  // namespace baton::kv

#endif  // BATON_KV_CACHE_EVENT_H_
