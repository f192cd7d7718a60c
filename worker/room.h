// The worker's one queue for KV blocks, by age, over everything that wants some: requests that run
// here, requests of a source, reservations of peers.
#ifndef BATON_WORKER_ROOM_H_
#define BATON_WORKER_ROOM_H_

#include <cstddef>
#include <utility>

#include "common/executor.h"
#include "engine/room_queue.h"
#include "kv/block_pool.h"

namespace baton::worker {

// Grants in turns of its own, never inside a call. Owner thread: the executor's. Takes the pool's
// freed callback.
class Room {
 public:
  using ClaimId = engine::RoomQueue::ClaimId;
  using Claim = engine::RoomQueue::Claim;

  // Both must outlive this object.
  Room(Executor& executor, kv::BlockPool& pool) : executor_(executor), pool_(pool), queue_(pool) {
    pool_.SetFreedCallback([this] { Poke(); });
  }
  ~Room() {
    pool_.SetFreedCallback([] {});
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  ClaimId Add(Claim claim) {
    Poke();
    return queue_.Add(std::move(claim));
  }
  void Cancel(ClaimId id) {
    queue_.Cancel(id);
    Poke();
  }
  // A may_grant may have changed its mind.
  void Poke() {
    if (pump_pending_) return;
    pump_pending_ = true;
    pump_ = executor_.PostAt(executor_.Now(), [this] {
      pump_pending_ = false;
      queue_.Pump();
    });
  }

  size_t waiting() const { return queue_.size(); }
  kv::BlockPool& pool() { return pool_; }

 private:
  Executor& executor_;
  kv::BlockPool& pool_;
  engine::RoomQueue queue_;
  TimerHandle pump_;
  bool pump_pending_ = false;
};

}  // namespace baton::worker

#endif  // BATON_WORKER_ROOM_H_
