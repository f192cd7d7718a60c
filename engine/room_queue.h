// Who gets blocks next: strictly the oldest request first, whether it is a reservation for a peer's
// sequence or one that starts here. Nobody overtakes an older one that does not fit yet, so nothing
// starves. Owner thread: the engine's executor.
#ifndef BATON_ENGINE_ROOM_QUEUE_H_
#define BATON_ENGINE_ROOM_QUEUE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "common/time.h"
#include "kv/block_pool.h"

namespace baton::engine {

class RoomQueue {
 public:
  using ClaimId = uint64_t;
  struct Claim {
    Time admitted_at{};            // now - age
    std::vector<uint32_t> blocks;  // per group; the pool CanEverFit it
    // Called by Pump, with the blocks taken (state reserved). May Add and Cancel.
    std::function<void(kv::BlockLease)> granted;
    // Optional: says whether this claim may be granted now although blocks are free (a source lets
    // waiting requests hold only a part of its pool). False stops the queue as a lack of blocks
    // does.
    std::function<bool()> may_grant = nullptr;
  };

  explicit RoomQueue(kv::BlockPool& pool) : pool_(pool) {}

  // Never calls back. Follow it by Pump.
  ClaimId Add(Claim claim);
  void Cancel(ClaimId id);  // ignored once granted
  bool IsWaiting(ClaimId id) const;

  // Grants while the oldest fits. Call it after Add and (posted) whenever blocks became free.
  void Pump();

  size_t size() const { return by_age_.size(); }

 private:
  using Key = std::pair<Time, ClaimId>;
  kv::BlockPool& pool_;
  std::map<Key, Claim> by_age_;
  std::map<ClaimId, Time> admitted_at_;
  ClaimId next_ = 1;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_ROOM_QUEUE_H_
