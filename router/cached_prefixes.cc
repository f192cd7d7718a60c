#include "router/cached_prefixes.h"

#include <algorithm>
#include <optional>

namespace baton::router {
namespace {

bool SameNames(const WorkerView& a, const WorkerView& b) {
  return a.block_size == b.block_size && a.numerics_id == b.numerics_id;
}

}  // namespace

CachedPrefixMetrics::CachedPrefixMetrics(MetricsRegistry& registry)
    : index_bytes(registry
                      .AddGauge("baton_router_cache_index_bytes",
                                "Memory of the index of what workers hold of prompts.")
                      .Get()),
      index_entries(registry
                        .AddGauge("baton_router_cache_index_entries",
                                  "Pairs of worker and extent in that index.")
                        .Get()),
      index_dropped(registry
                        .AddCounter("baton_router_cache_index_dropped_total",
                                    "Pairs that its byte cap dropped or kept out.")
                        .Get()),
      events(registry
                 .AddCounter("baton_router_cache_events_total",
                             "Blocks that workers' caches were said to gain or lose.")
                 .Get()),
      gaps(registry
               .AddCounter("baton_router_cache_gaps_total",
                           "Batches of such events that did not follow on the one before.")
               .Get()),
      resyncs(registry
                  .AddCounter("baton_router_cache_resyncs_total",
                              "Times that a worker was asked for all that its cache holds.")
                  .Get()),
      hit_tokens(registry
                     .AddCounter("baton_router_cache_hit_tokens_total",
                                 "Prompt tokens that the worker of their placement was thought to "
                                 "hold.")
                     .Get()) {}

CachedPrefixes::CachedPrefixes(size_t max_bytes, MetricsRegistry& metrics)
    : metrics_(metrics), index_(max_bytes) {}

CacheFeed& CachedPrefixes::Feed(size_t worker) {
  while (feeds_.size() <= worker) feeds_.emplace_back(index_);
  return feeds_[worker];
}

CacheFeed::Ask CachedPrefixes::Started(size_t worker) {
  CacheFeed& feed = Feed(worker);
  const CacheFeedCounts before = feed.counts();
  const CacheFeed::Ask ask = feed.Started();
  NoteChanges(feed, before);
  return ask;
}

void CachedPrefixes::Lost(size_t worker) { Feed(worker).Lost(); }

CacheFeed::Ask CachedPrefixes::OnBatch(size_t worker, const kv::CacheEventBatch& batch) {
  CacheFeed& feed = Feed(worker);
  const CacheFeedCounts before = feed.counts();
  const CacheFeed::Ask ask = feed.OnBatch(batch);
  NoteChanges(feed, before);
  return ask;
}

CacheFeed::Ask CachedPrefixes::OnPage(size_t worker, const kv::CacheSnapshotPage& page) {
  CacheFeed& feed = Feed(worker);
  const CacheFeedCounts before = feed.counts();
  const CacheFeed::Ask ask = feed.OnPage(page);
  NoteChanges(feed, before);
  return ask;
}

void CachedPrefixes::NoteChanges(const CacheFeed& feed, const CacheFeedCounts& before) {
  const CacheFeedCounts& now = feed.counts();
  metrics_.events.Increment(static_cast<double>(now.events - before.events));
  metrics_.gaps.Increment(static_cast<double>(now.gaps - before.gaps));
  metrics_.resyncs.Increment(static_cast<double>(now.resyncs - before.resyncs));
  metrics_.index_dropped.Increment(static_cast<double>(index_.dropped() - dropped_));
  dropped_ = index_.dropped();
  metrics_.index_bytes.Set(static_cast<double>(index_.bytes()));
  metrics_.index_entries.Set(static_cast<double>(index_.entries()));
}

std::span<const uint32_t> CachedPrefixes::Match(const BlockNames& names,
                                                std::span<const WorkerView* const> workers) {
  tokens_.assign(workers.size(), 0);
  if (index_.entries() == 0) return tokens_;
  std::vector<const WorkerView*> kinds;  // one of each; nearly always one
  for (size_t i = 0; i < std::min(feeds_.size(), workers.size()); ++i) {
    const bool known = std::any_of(kinds.begin(), kinds.end(), [&](const WorkerView* kind) {
      return SameNames(*kind, *workers[i]);
    });
    if (!known && feeds_[i].place().has_value() && workers[i]->block_size > 0) {
      kinds.push_back(workers[i]);
    }
  }
  for (const WorkerView* kind : kinds) {
    index_.Match(names(*kind), held_);
    for (size_t i = 0; i < std::min(feeds_.size(), workers.size()); ++i) {
      const std::optional<uint32_t> place = feeds_[i].place();
      if (!place.has_value() || !SameNames(*kind, *workers[i])) continue;
      tokens_[i] = held_[*place] * kind->block_size;
    }
  }
  return tokens_;
}

void CachedPrefixes::NotePlaced(uint64_t cached_tokens) {
  metrics_.hit_tokens.Increment(static_cast<double>(cached_tokens));
}

}  // namespace baton::router
