// What the workers' caches hold of a prompt, as placement asks: their feeds over one extent index,
// and what this moves in the metrics.
#ifndef BATON_ROUTER_CACHED_PREFIXES_H_
#define BATON_ROUTER_CACHED_PREFIXES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/metrics.h"
#include "kv/cache_event.h"
#include "router/cache_feed.h"
#include "router/extent_index.h"
#include "router/worker_view.h"

namespace baton::router {

struct CachedPrefixMetrics {
  explicit CachedPrefixMetrics(MetricsRegistry& registry);

  Gauge index_bytes;
  Gauge index_entries;
  Counter index_dropped;
  Counter events;
  Counter gaps;
  Counter resyncs;
  Counter hit_tokens;
};

// Owner thread: the core's. Workers by their index in the core's list.
class CachedPrefixes {
 public:
  // Names of a prompt's full blocks as such a worker has them (block size, numerics); valid until
  // the next call.
  using BlockNames = std::function<std::span<const Digest>(const WorkerView& worker)>;

  CachedPrefixes(size_t max_bytes, MetricsRegistry& metrics);

  // As of CacheFeed: what they return is to be asked of the worker.
  CacheFeed::Ask Started(size_t worker);
  void Lost(size_t worker);
  CacheFeed::Ask OnBatch(size_t worker, const kv::CacheEventBatch& batch);
  CacheFeed::Ask OnPage(size_t worker, const kv::CacheSnapshotPage& page);

  // Tokens of the prompt that each worker holds, one figure per worker; valid until the next call.
  std::span<const uint32_t> Match(const BlockNames& names,
                                  std::span<const WorkerView* const> workers);
  // A prompt was placed where so many of its tokens are thought to be held.
  void NotePlaced(uint64_t cached_tokens);

  const ExtentIndex& index() const { return index_; }

 private:
  CacheFeed& Feed(size_t worker);
  // Metrics, from what feed and index count.
  void NoteChanges(const CacheFeed& feed, const CacheFeedCounts& before);

  CachedPrefixMetrics metrics_;
  ExtentIndex index_;
  std::deque<CacheFeed> feeds_;  // by worker
  uint64_t dropped_ = 0;         // those that the metric has
  std::vector<uint32_t> held_;
  std::vector<uint32_t> tokens_;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_CACHED_PREFIXES_H_
