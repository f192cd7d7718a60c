#include "engine/room_by_age.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "kv/block_demand.h"

namespace baton::engine {

void RoomByAge::Settle() {
  by_age_ = ByAge();
  lacking_ = 0;
  for (Sequence* sequence : by_age_) {
    if (!sequence->preempted() && !Grow(*sequence)) ++lacking_;
  }
  for (Sequence* sequence : by_age_) {
    if (sequence->preempted() && (lacking_ > 0 || !Resume(*sequence))) ++lacking_;
  }
}

std::vector<Sequence*> RoomByAge::ByAge() const {
  std::vector<Sequence*> out;
  for (const auto& [id, sequence] : env_.sequences) {
    const bool takes_part = sequence->mode() == SequenceMode::kGenerate && !sequence->over();
    if (takes_part) out.push_back(sequence.get());
  }
  std::sort(out.begin(), out.end(), [](const Sequence* a, const Sequence* b) {
    return std::make_tuple(a->admitted_at(), a->id()) < std::make_tuple(b->admitted_at(), b->id());
  });
  return out;
}

// A prompt has its blocks from the start.
bool RoomByAge::Grow(Sequence& sequence) {
  if (sequence.in_prompt()) return true;
  bool all = true;
  for (Choice& choice : sequence.choices()) {
    if (!choice.finished() && !choice.has_room()) all &= Grow(sequence, choice);
  }
  return all;
}

bool RoomByAge::Grow(Sequence& sequence, Choice& choice) {
  const uint32_t size = choice.table().block_size();
  const uint64_t lacks = kv::BlocksFor(choice.slots_now(), size) - choice.table().slots() / size;
  const std::vector<uint32_t> wanted(env_.pool.num_groups(), static_cast<uint32_t>(lacks));
  if (!MakeRoom(sequence, wanted)) return false;
  auto lease = env_.pool.Take(wanted);
  BATON_CHECK(lease.ok());
  choice.table().lease().Append(*std::move(lease));
  return true;
}

bool RoomByAge::MakeRoom(const Sequence& sequence, const std::vector<uint32_t>& wanted) {
  while (!env_.pool.FitsNow(wanted)) {
    Sequence* const youngest = Youngest();
    const GaveUp gave = env_.others == nullptr
                            ? GaveUp::kNobody
                            : env_.others->GiveUpYoungest(youngest->admitted_at());
    if (gave == GaveUp::kComing || youngest == &sequence) return false;
    Preempt(*youngest);
  }
  return true;
}

// The one that needs room holds blocks, so there is one.
Sequence* RoomByAge::Youngest() const {
  const auto found = std::find_if(by_age_.rbegin(), by_age_.rend(),
                                  [](const Sequence* one) { return !one->preempted(); });
  BATON_CHECK(found != by_age_.rend());
  return *found;
}

void RoomByAge::Preempt(Sequence& sequence) {
  sequence.GiveWay();
  env_.metrics.preemptions.Increment();
}

uint32_t RoomByAge::Spare() const {
  uint32_t growing = 0;
  for (const auto& [id, sequence] : env_.sequences) growing += sequence->growing();
  return (growing + 1) / 2;
}

bool RoomByAge::Resume(Sequence& sequence) {
  if (!sequence.Resume({env_.pool, env_.windows, env_.cache, Spare()})) return false;
  env_.metrics.recomputed_tokens.Increment(static_cast<double>(sequence.to_recompute()));
  return true;
}

}  // namespace baton::engine
