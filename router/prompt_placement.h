// Where prompts go, with what the workers hold of them: keeps their caches' content by their
// events and asks Place.
#ifndef BATON_ROUTER_PROMPT_PLACEMENT_H_
#define BATON_ROUTER_PROMPT_PLACEMENT_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "baton/worker/v1/worker.pb.h"
#include "common/executor.h"
#include "common/metrics.h"
#include "router/cache_feed.h"
#include "router/cached_prefixes.h"
#include "router/core_options.h"
#include "router/placement.h"
#include "router/prompt_names.h"
#include "router/request.h"
#include "router/worker_link.h"
#include "router/worker_view.h"

namespace baton::router {

// Owner thread: the core's. Everything passed in outlives it.
class PromptPlacement {
 public:
  using Links = std::vector<std::unique_ptr<WorkerLink>>;

  PromptPlacement(const CoreOptions& options, const Executor& executor, MetricsRegistry& metrics,
                  const Links& links, const std::vector<const WorkerView*>& views);

  // A session with the worker opened, or is over: what it held is asked for, or forgotten.
  void OnReady(size_t worker);
  void OnLost(size_t worker);
  // False: the event is not about a cache.
  bool OnEvent(size_t worker, const worker::v1::WorkerEvent& event);

  // How those workers name blocks whose caches hold anything; none when nobody looks at caches.
  std::span<const BlockNaming> BlockNamings() const;

  // Whether anybody could take it ever, without looking at caches.
  Placement Possible(const PlacementRequest& request) const;
  // `names`: the prompt's. Counts nothing.
  Placement Choose(PlacementRequest request, PromptNames& names);
  // The request goes where it was placed.
  void NotePlaced(const Placement& placement) { prefixes_.NotePlaced(placement.cached_tokens); }

  void LearnKvBytes(double bytes_per_token) { kv_bytes_per_token_ = bytes_per_token; }

 private:
  void Ask(size_t worker, CacheFeed::Ask page);
  void NoteNamings();
  bool AnyWindowOpen() const;
  PlacementOptions Now() const;

  const CoreOptions& options_;
  const Executor& executor_;
  const Links& links_;
  const std::vector<const WorkerView*>& views_;
  CachedPrefixes prefixes_;
  std::vector<BlockNaming> namings_;  // of those that are ready, each once
  double kv_bytes_per_token_ = 0;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_PROMPT_PLACEMENT_H_
