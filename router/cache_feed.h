// What one worker's cache holds, from its events into the extent index. Events carry numbers; when
// some are missing, all is forgotten and asked for again page by page.
#ifndef BATON_ROUTER_CACHE_FEED_H_
#define BATON_ROUTER_CACHE_FEED_H_

#include <cstdint>
#include <optional>
#include <set>

#include "common/ids.h"
#include "kv/cache_event.h"
#include "router/extent_index.h"

namespace baton::router {

struct CacheFeedCounts {
  uint64_t events = 0;    // applied
  uint64_t repeated = 0;  // ignored: known already
  uint64_t gaps = 0;      // events were missing
  uint64_t resyncs = 0;   // times everything was asked for
};

// A state machine without a clock. Owner thread: the core's; the index outlives it.
class CacheFeed {
 public:
  // A page that is to be asked for, by where it begins.
  using Ask = std::optional<uint32_t>;

  explicit CacheFeed(ExtentIndex& index) : index_(index) {}
  ~CacheFeed() { Lost(); }
  CacheFeed(const CacheFeed&) = delete;
  CacheFeed& operator=(const CacheFeed&) = delete;

  // A session with a worker begins: whatever is known is of another time.
  Ask Started();
  // It is over: the worker holds nothing that counts.
  void Lost();

  // Of the session that Started; none before it.
  Ask OnBatch(const kv::CacheEventBatch& batch);
  Ask OnPage(const kv::CacheSnapshotPage& page);

  // In the index; absent: nothing is known of the worker.
  std::optional<uint32_t> place() const { return place_; }
  // Whether every page is there.
  bool whole() const { return place_.has_value() && !awaited_page_.has_value(); }
  const CacheFeedCounts& counts() const { return counts_; }

 private:
  Ask Resync();
  void Apply(std::span<const kv::CacheEvent> events);
  void Store(const kv::CacheEvent& event, bool continued);
  void Remove(const kv::CacheEvent& event, bool continued);

  ExtentIndex& index_;
  std::optional<uint32_t> place_;
  Ask awaited_page_;
  bool page_seen_ = false;  // one of this snapshot: next_ counts
  uint64_t next_ = 0;       // number of the first event that is not in yet
  uint32_t patience_ = 0;   // batches until the page is asked for again
  // Blocks whose child came before them, which is possible while pages come: the child's entry
  // stands for both.
  std::set<Digest> implied_;
  CacheFeedCounts counts_;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_CACHE_FEED_H_
