#include "router/cache_feed.h"

#include <span>

namespace baton::router {
namespace {

using kv::CacheEvent;

constexpr uint32_t kExtentBlocks = ExtentIndex::kExtentBlocks;
// Batches come 20 times a second while a cache changes.
constexpr uint32_t kPatienceBatches = 200;

bool BeginsExtent(uint32_t ordinal) { return ordinal % kExtentBlocks == 0; }
bool EndsExtent(uint32_t ordinal) { return ordinal % kExtentBlocks == kExtentBlocks - 1; }

}  // namespace

CacheFeed::Ask CacheFeed::Started() { return Resync(); }

void CacheFeed::Lost() {
  if (place_.has_value()) index_.RemovePlace(*place_);
  place_.reset();
  awaited_page_.reset();
  implied_.clear();
}

CacheFeed::Ask CacheFeed::Resync() {
  Lost();
  place_ = index_.AddPlace();
  if (!place_.has_value()) return std::nullopt;
  ++counts_.resyncs;
  awaited_page_ = 0;
  page_seen_ = false;
  patience_ = kPatienceBatches;
  return awaited_page_;
}

CacheFeed::Ask CacheFeed::OnBatch(const kv::CacheEventBatch& batch) {
  if (!place_.has_value()) return std::nullopt;
  if (awaited_page_.has_value() && --patience_ == 0) return Resync();
  if (!page_seen_) return std::nullopt;  // its events are in the pages to come
  if (batch.first_sequence > next_) {
    ++counts_.gaps;
    return Resync();
  }
  const uint64_t known = next_ - batch.first_sequence;
  if (known >= batch.events.size()) {
    counts_.repeated += batch.events.size();
    return std::nullopt;
  }
  counts_.repeated += known;
  Apply(std::span(batch.events).subspan(known));
  next_ = batch.next_sequence();
  return std::nullopt;
}

CacheFeed::Ask CacheFeed::OnPage(const kv::CacheSnapshotPage& page) {
  if (awaited_page_ != page.begin) return std::nullopt;
  if (!page_seen_) {
    next_ = page.as_of;
    page_seen_ = true;
  }
  // Older than what was applied since: blocks that were removed would come back.
  if (page.as_of < next_) return Resync();
  // Where pages do not move on they would come for ever.
  if (page.next != 0 && page.next <= page.begin) return Resync();
  Apply(page.blocks);
  patience_ = kPatienceBatches;
  if (page.next != 0) return awaited_page_ = page.next;
  awaited_page_.reset();
  implied_.clear();
  return std::nullopt;
}

void CacheFeed::Apply(std::span<const CacheEvent> events) {
  counts_.events += events.size();
  for (size_t i = 0; i < events.size(); ++i) {
    const CacheEvent& event = events[i];
    const CacheEvent* const next = i + 1 < events.size() ? &events[i + 1] : nullptr;
    if (event.action == CacheEvent::Action::kStored) {
      const bool continued = next != nullptr && next->action == event.action &&
                             next->parent == event.hash && !EndsExtent(event.ordinal);
      Store(event, continued);
    } else {
      const bool continued =
          next != nullptr && next->action == event.action && next->hash == event.parent;
      Remove(event, continued);
    }
  }
}

// The entry of the block replaces that of its parent, unless the parent's says that an extent is
// full. `continued`: the next event would replace this one's.
void CacheFeed::Store(const CacheEvent& event, bool continued) {
  const bool implied = implied_.erase(event.hash) > 0;
  if (!continued && (!implied || EndsExtent(event.ordinal))) {
    index_.Set(*place_, event.hash, event.ordinal / kExtentBlocks);
  }
  if (BeginsExtent(event.ordinal)) return;
  if (!index_.Clear(*place_, event.parent) && awaited_page_.has_value()) {
    implied_.insert(event.parent);
  }
}

// The chain ends one block earlier now. `continued`: the next event takes that one too.
void CacheFeed::Remove(const CacheEvent& event, bool continued) {
  implied_.erase(event.hash);
  index_.Clear(*place_, event.hash);
  if (continued || BeginsExtent(event.ordinal)) return;
  index_.Set(*place_, event.parent, event.ordinal / kExtentBlocks);
}

}  // namespace baton::router
