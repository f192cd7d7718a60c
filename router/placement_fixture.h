// Two prefill and two decode workers as placement sees them; for tests.
#ifndef BATON_ROUTER_PLACEMENT_FIXTURE_H_
#define BATON_ROUTER_PLACEMENT_FIXTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "gtest/gtest.h"
#include "router/placement.h"
#include "router/worker_view.h"

namespace baton::router {

inline WorkerView Worker(const std::string& name, bool prefill) {
  WorkerView view;
  view.ready = true;
  view.prefill = prefill;
  view.name = name;
  view.block_size = 16;
  view.pool_blocks = {100};
  view.free_blocks = {100};
  view.context_length = 1024;
  view.numerics_id = Digest{1, 1};
  view.layout_fp = Digest{2, 2};
  view.prompt_steps = 100;
  return view;
}

inline PlacementRequest Request(uint64_t prompt = 64, uint32_t max_tokens = 32) {
  PlacementRequest request;
  request.prompt_tokens = prompt;
  request.max_tokens = max_tokens;
  return request;
}

inline Placement PlaceOn(const std::vector<WorkerView>& workers, const PlacementRequest& request,
                         const PlacementOptions& options = {}) {
  std::vector<const WorkerView*> views;
  for (const WorkerView& worker : workers) views.push_back(&worker);
  return Place(views, request, options);
}

class PlacementTest : public testing::Test {
 protected:
  // Indices: 0 and 1 prefill, 2 and 3 decode.
  std::vector<WorkerView> workers_ = {Worker("p0", true), Worker("p1", true), Worker("d0", false),
                                      Worker("d1", false)};
};

// 0 and 1 prefill, 2 and 3 decode: tokens of the prompt that each holds.
struct Held {
  std::vector<uint32_t> tokens;
  PlacementRequest Request(uint64_t prompt = 512) const {
    PlacementRequest request;
    request.prompt_tokens = prompt;
    request.max_tokens = 32;
    request.cached_tokens = tokens;
    return request;
  }
};

}  // namespace baton::router

#endif  // BATON_ROUTER_PLACEMENT_FIXTURE_H_
