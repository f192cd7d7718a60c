// The worker's one queue for KV blocks, by age, over everything that wants its first: requests that
// run here, requests of a source, reservations of peers. What runs already grows before anybody is
// granted any.
#ifndef BATON_WORKER_ROOM_H_
#define BATON_WORKER_ROOM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "common/executor.h"
#include "engine/room_queue.h"
#include "kv/block_pool.h"
#include "kv/prefix_cache.h"

namespace baton::worker {

// Grants in turns of its own, never inside a call. Owner thread: the executor's. Takes the pool's
// freed callback.
class Room {
 public:
  using ClaimId = engine::RoomQueue::ClaimId;
  using Claim = engine::RoomQueue::Claim;

  // All must outlive this object. Null: claims have no prefix.
  Room(Executor& executor, kv::BlockPool& pool, kv::PrefixCache* cache)
      : executor_(executor), pool_(pool), queue_(pool, cache) {
    pool_.SetFreedCallback([this] { Poke(); });
  }
  ~Room() {
    pool_.SetFreedCallback([] {});
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // `spare` is asked before anything is granted: how many blocks of each group to leave free;
  // absent while sequences that have run already lack some (engine::Engine::OnBlocksFreed). Poke
  // when it may be there again.
  void SetSpare(std::function<std::optional<uint32_t>()> spare) { spare_ = std::move(spare); }

  ClaimId Add(Claim claim) {
    Poke();
    return queue_.Add(std::move(claim));
  }
  void Cancel(ClaimId id) {
    queue_.Cancel(id);
    Poke();
  }
  // Somebody's turn may have come, or a reservation is gone that freed nothing.
  void Poke() {
    if (pump_pending_) return;
    pump_pending_ = true;
    pump_ = executor_.PostAt(executor_.Now(), [this] {
      pump_pending_ = false;
      const std::optional<uint32_t> spare = spare_ == nullptr ? 0 : spare_();
      if (spare.has_value()) queue_.Pump(*spare);
    });
  }

  size_t waiting() const { return queue_.size(); }
  kv::BlockPool& pool() { return pool_; }

 private:
  Executor& executor_;
  kv::BlockPool& pool_;
  engine::RoomQueue queue_;
  std::function<std::optional<uint32_t>()> spare_;
  TimerHandle pump_;
  bool pump_pending_ = false;
};

}  // namespace baton::worker

#endif  // BATON_WORKER_ROOM_H_
