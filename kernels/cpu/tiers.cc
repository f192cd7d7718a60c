#include "kernels/cpu/tiers.h"

namespace baton::kernels::cpu {

const TierEntry* FindTier(std::string_view name) {
  for (const TierEntry& entry : Tiers()) {
    if (entry.tier->name == name) return &entry;
  }
  return nullptr;
}

const Tier& BestTier() {
  for (const TierEntry& entry : Tiers()) {
    if (entry.runs) return *entry.tier;
  }
  return *Tiers().back().tier;
}

}  // namespace baton::kernels::cpu
