// The one way in which a row is summed: value i goes to lane i mod 16, lanes are joined by a tree.
#ifndef BATON_KERNELS_CPU_LANE_SUM_H_
#define BATON_KERNELS_CPU_LANE_SUM_H_

#include <cstdint>

namespace baton::kernels::cpu {

inline constexpr uint32_t kLanes = 16;

// Overwrites the lanes.
inline float SumOfLanes(float (&lanes)[kLanes]) {
  for (uint32_t width = kLanes / 2; width > 0; width /= 2) {
    for (uint32_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_LANE_SUM_H_
