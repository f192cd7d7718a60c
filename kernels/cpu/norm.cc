#include "kernels/cpu/norm.h"

#include "kernels/cpu/lane_sum.h"

namespace baton::kernels::cpu {

void RmsNorm(const float* x, const float* gain, uint32_t n, float eps, float* out) {
  float lanes[kLanes] = {};
  uint32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  }
  for (uint32_t lane = 0; i + lane < n; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  const float mean = SumOfLanes(lanes) / static_cast<float>(n);
  const float inverse = 1.0f / __builtin_sqrtf(mean + eps);
  for (uint32_t k = 0; k < n; ++k) out[k] = x[k] * inverse * gain[k];
}

void RowNorm::Run(uint32_t begin, uint32_t end) const {
  for (uint32_t row = begin; row < end; ++row) {
    RmsNorm(x.values(row), gain, x.cols(), eps, out.values(row));
  }
  out.Quantize(tier, out.values(begin), out.cols(), begin, end - begin, 0, out.blocks());
}

NormEpilogue::NormEpilogue(const RowNorm& norm, Countdowns& tiles) : norm_(norm), tiles_(tiles) {
  tiles.Reset((norm.x.rows() + kTileRows - 1) / kTileRows, norm.x.cols());
}

void NormEpilogue::Finished(Rows rows, uint32_t begin, uint32_t end) {
  if (tiles_.Finish(rows.tile(), end - begin)) norm_.Run(rows.first, rows.first + rows.count);
}

}  // namespace baton::kernels::cpu
