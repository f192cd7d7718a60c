// The tiers of this build and the choice among them.
#ifndef BATON_KERNELS_CPU_TIERS_H_
#define BATON_KERNELS_CPU_TIERS_H_

#include <span>
#include <string_view>

#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

struct TierEntry {
  const Tier* tier = nullptr;
  bool runs = false;       // on this processor, with the system's consent
  const char* needs = "";  // what the processor must have, for people
};

// Best first. The last is scalar, which runs anywhere.
std::span<const TierEntry> Tiers();

// Null where the build has no tier of that name.
const TierEntry* FindTier(std::string_view name);

// The first that runs.
const Tier& BestTier();

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_TIERS_H_
