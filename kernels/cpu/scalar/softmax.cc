#include <cmath>
#include <limits>

#include "kernels/cpu/row_loops.h"
#include "kernels/cpu/scalar/exp.h"
#include "kernels/cpu/scalar/scalar.h"

namespace baton::kernels::cpu {

SoftmaxState ScalarSoftmax(float* scores, uint32_t n, float scale) {
  float max = -std::numeric_limits<float>::infinity();
  for (uint32_t i = 0; i < n; ++i) {
    scores[i] *= scale;
    max = scores[i] > max ? scores[i] : max;
  }
  float lanes[kLanes] = {};
  for (uint32_t i = 0; i < n; ++i) {
    scores[i] = Exp(scores[i] - max);
    lanes[i % kLanes] += scores[i];
  }
  return {max, SumOfLanes(lanes)};
}

void ScalarMerge(SoftmaxState* state, float* values, const SoftmaxState& next,
                 const float* next_values, uint32_t n) {
  const float max = next.max > state->max ? next.max : state->max;
  const float keep = Exp(state->max - max);
  const float add = Exp(next.max - max);
  state->max = max;
  state->sum = std::fmaf(state->sum, keep, next.sum * add);
  for (uint32_t i = 0; i < n; ++i) values[i] = std::fmaf(values[i], keep, next_values[i] * add);
}

}  // namespace baton::kernels::cpu
