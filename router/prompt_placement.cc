#include "router/prompt_placement.h"

#include <algorithm>

#include "proto/mapping/cache_events.h"

namespace baton::router {

PromptPlacement::PromptPlacement(const CoreOptions& options, const Executor& executor,
                                 MetricsRegistry& metrics, const Links& links,
                                 const std::vector<const WorkerView*>& views)
    : options_(options),
      executor_(executor),
      links_(links),
      views_(views),
      prefixes_(options.cache_index_bytes, metrics) {}

void PromptPlacement::OnReady(size_t worker) {
  NoteNamings();
  Ask(worker, prefixes_.Started(worker));
}

void PromptPlacement::OnLost(size_t worker) {
  NoteNamings();
  prefixes_.Lost(worker);
}

bool PromptPlacement::OnEvent(size_t worker, const worker::v1::WorkerEvent& event) {
  if (event.has_cache_events()) {
    Ask(worker, prefixes_.OnBatch(worker, proto::Get(event.cache_events())));
    return true;
  }
  if (event.has_cache_snapshot()) {
    Ask(worker, prefixes_.OnPage(worker, proto::Get(event.cache_snapshot())));
    return true;
  }
  return false;
}

void PromptPlacement::Ask(size_t worker, CacheFeed::Ask page) {
  if (page.has_value()) links_[worker]->AskForCachePage(*page);
}

Placement PromptPlacement::Possible(const PlacementRequest& request) const {
  return Place(views_, request, Now());
}

Placement PromptPlacement::Choose(PlacementRequest request, PromptNames& names) {
  // Who has to wait is looked at again and again.
  if (options_.placement != PlacementPolicy::kLeastWork && AnyWindowOpen()) {
    request.cached_tokens =
        prefixes_.Match([&names](const WorkerView& worker) { return names.For(worker); }, views_);
  }
  return Place(views_, request, Now());
}

std::span<const BlockNaming> PromptPlacement::BlockNamings() const {
  if (options_.placement == PlacementPolicy::kLeastWork || prefixes_.index().entries() == 0) {
    return {};
  }
  return namings_;
}

void PromptPlacement::NoteNamings() {
  namings_.clear();
  for (const WorkerView* view : views_) {
    const BlockNaming naming = {view->block_size, view->numerics_id};
    if (view->ready && std::find(namings_.begin(), namings_.end(), naming) == namings_.end()) {
      namings_.push_back(naming);
    }
  }
}

bool PromptPlacement::AnyWindowOpen() const {
  return std::any_of(views_.begin(), views_.end(), [this](const WorkerView* view) {
    return view->ready && view->prompts_in_flight < options_.prompt_window;
  });
}

PlacementOptions PromptPlacement::Now() const {
  PlacementOptions options;
  options.max_sinks = options_.max_sinks;
  options.prompt_window = static_cast<uint32_t>(options_.prompt_window);
  options.kv_bytes_per_token = kv_bytes_per_token_;
  options.policy = options_.placement;
  options.now = executor_.Now();
  return options;
}

}  // namespace baton::router
