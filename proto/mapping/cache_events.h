// What a prefix cache holds and how it changes (kv/cache_event.h) <-> worker.v1.
#ifndef BATON_PROTO_MAPPING_CACHE_EVENTS_H_
#define BATON_PROTO_MAPPING_CACHE_EVENTS_H_

#include "baton/worker/v1/worker.pb.h"
#include "kv/cache_event.h"
#include "proto/mapping/ids.h"

namespace baton::proto {

inline void Set(const kv::CacheEvent& from, worker::v1::CacheEvent& to) {
  to.set_removed(from.action == kv::CacheEvent::Action::kRemoved);
  to.set_ordinal(from.ordinal);
  Set(from.hash, *to.mutable_hash());
  Set(from.parent, *to.mutable_parent());
}

inline kv::CacheEvent Get(const worker::v1::CacheEvent& from) {
  using Action = kv::CacheEvent::Action;
  return {from.removed() ? Action::kRemoved : Action::kStored, from.ordinal(), Get(from.hash()),
          Get(from.parent())};
}

inline void Set(const kv::CacheEventBatch& from, worker::v1::CacheEvents& to) {
  to.set_first_sequence(from.first_sequence);
  for (const kv::CacheEvent& event : from.events) Set(event, *to.add_events());
}

inline kv::CacheEventBatch Get(const worker::v1::CacheEvents& from) {
  kv::CacheEventBatch batch;
  batch.first_sequence = from.first_sequence();
  for (const worker::v1::CacheEvent& event : from.events()) batch.events.push_back(Get(event));
  return batch;
}

inline void Set(const kv::CacheSnapshotPage& from, worker::v1::CacheSnapshot& to) {
  to.set_page(from.begin);
  to.set_as_of(from.as_of);
  for (const kv::CacheEvent& block : from.blocks) Set(block, *to.add_blocks());
  to.set_next(from.next);
}

inline kv::CacheSnapshotPage Get(const worker::v1::CacheSnapshot& from) {
  kv::CacheSnapshotPage page;
  page.begin = from.page();
  page.as_of = from.as_of();
  for (const worker::v1::CacheEvent& block : from.blocks()) page.blocks.push_back(Get(block));
  page.next = from.next();
  return page;
}

}  // namespace baton::proto

#endif  // BATON_PROTO_MAPPING_CACHE_EVENTS_H_
