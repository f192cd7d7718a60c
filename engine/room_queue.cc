#include "engine/room_queue.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"

namespace baton::engine {

namespace {

std::vector<uint32_t> Sum(std::vector<uint32_t> a, const std::vector<uint32_t>& b) {
  for (size_t g = 0; g < a.size(); ++g) a[g] += b[g];
  return a;
}

}  // namespace

RoomQueue::ClaimId RoomQueue::Add(Claim claim) {
  BATON_CHECK(pool_.CanEverFit(claim.blocks));
  BATON_CHECK(!claim.prefix.has_value() || cache_ != nullptr);
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

absl::StatusOr<kv::CachedLease> RoomQueue::Take(const Claim& claim,
                                                const std::vector<uint32_t>& spare) {
  if (claim.prefix.has_value()) {
    return cache_->Take(*claim.prefix, claim.blocks, *std::max_element(spare.begin(), spare.end()));
  }
  const std::vector<uint32_t> needed = Sum(claim.blocks, spare);
  if (!pool_.FitsNow(needed)) return pool_.Take(needed).status();
  BATON_ASSIGN_OR_RETURN(kv::BlockLease lease, pool_.Take(claim.blocks));
  return kv::CachedLease{std::move(lease), {}};
}

bool RoomQueue::Grant(std::vector<uint32_t> spare) {
  for (auto next = by_age_.begin(); next != by_age_.end() && pool_.FitsNow(spare); ++next) {
    const bool overtakes = next != by_age_.begin();
    const Turn without = overtakes ? Turn::kStop : Turn::kNow;
    const Turn turn = next->second.turn == nullptr ? without : next->second.turn();
    if (turn == Turn::kStop) return false;
    if (turn == Turn::kLater) {
      spare = Sum(std::move(spare), next->second.blocks);
      continue;
    }
    absl::StatusOr<kv::CachedLease> lease = Take(next->second, spare);
    if (!lease.ok()) return false;
    const Claim claim = std::move(next->second);
    admitted_at_.erase(next->first.second);
    by_age_.erase(next);
    claim.granted(*std::move(lease));
    return true;
  }
  return false;
}

void RoomQueue::Pump(uint32_t spare) {
  while (Grant(std::vector<uint32_t>(pool_.num_groups(), spare))) {
  }
}

}  // namespace baton::engine
