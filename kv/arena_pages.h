// Has the kernel give an arena's memory before it is needed, beside other work.
#ifndef BATON_KV_ARENA_PAGES_H_
#define BATON_KV_ARENA_PAGES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "kv/arena.h"

namespace baton::kv {

// A machine can take a second to find and clear some hundred megabytes, and a worker is ready
// without them: a block whose pages are not there yet gets them when it is first written. So they
// come on a thread of their own, which gives way to those that work, the blocks that a pool gives
// out first before the others. Contents are not touched. Made and destroyed by one thread.
class ArenaPages {
 public:
  // Called once on the thread, unless the object dies first. RESOURCE_EXHAUSTED: the kernel has no
  // more memory; UNIMPLEMENTED: it cannot do this (before Linux 5.14), and pages come as they are
  // used.
  using Done = std::function<void(const absl::Status&)>;

  // `arena` must outlive this object.
  ArenaPages(KvArena& arena, Done done);
  // Waits for what the kernel is doing, some milliseconds.
  ~ArenaPages();
  ArenaPages(const ArenaPages&) = delete;
  ArenaPages& operator=(const ArenaPages&) = delete;

 private:
  void Run(const Done& done);
  absl::Status TakeAll();
  // From `offset` on, at most one huge page of each layer's arenas. *more: some have not ended.
  absl::Status TakeAt(uint64_t offset, bool* more);

  KvArena& arena_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace baton::kv

#endif  // BATON_KV_ARENA_PAGES_H_
