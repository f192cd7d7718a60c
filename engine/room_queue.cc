#include "engine/room_queue.h"

#include <utility>

#include "absl/status/statusor.h"
#include "common/check.h"

namespace baton::engine {

RoomQueue::ClaimId RoomQueue::Add(Claim claim) {
  BATON_CHECK(pool_.CanEverFit(claim.blocks));
  const ClaimId id = next_++;
  admitted_at_.emplace(id, claim.admitted_at);
  by_age_.emplace(Key{claim.admitted_at, id}, std::move(claim));
  return id;
}

void RoomQueue::Cancel(ClaimId id) {
  const auto it = admitted_at_.find(id);
  if (it == admitted_at_.end()) return;
  by_age_.erase(Key{it->second, id});
  admitted_at_.erase(it);
}

bool RoomQueue::IsWaiting(ClaimId id) const { return admitted_at_.contains(id); }

void RoomQueue::Pump() {
  while (!by_age_.empty()) {
    const auto oldest = by_age_.begin();
    if (oldest->second.may_grant != nullptr && !oldest->second.may_grant()) return;
    absl::StatusOr<kv::BlockLease> lease = pool_.Take(oldest->second.blocks);
    if (!lease.ok()) return;
    const Claim claim = std::move(oldest->second);
    admitted_at_.erase(oldest->first.second);
    by_age_.erase(oldest);
    claim.granted(*std::move(lease));
  }
}

}  // namespace baton::engine
