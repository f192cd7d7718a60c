#include "kernels/cpu/norm.h"

#include <algorithm>

namespace baton::kernels::cpu {
namespace {

constexpr uint32_t kPieceRows = 4;

}  // namespace

void RowNorm::Run(uint32_t begin, uint32_t end) const {
  for (uint32_t row = begin; row < end; ++row) {
    tier.rms_norm(x.values(row), gain, x.cols(), eps, out.values(row));
  }
  out.Quantize(tier, out.values(begin), out.cols(), begin, end - begin, 0, out.blocks());
}

NormEpilogue::NormEpilogue(const RowNorm& norm, ThreadPool& pool, Countdowns& counts)
    : last_band_{norm, (norm.x.rows() - 1) / kBandRows * kBandRows}, pool_(pool), counts_(counts) {
  const uint32_t tiles = last_band_.first / kTileRows;
  counts.Reset(tiles + 1, kTileRows * norm.x.cols());
  counts.Set(tiles, (norm.x.rows() - last_band_.first) * norm.x.cols());
}

void NormEpilogue::Finished(Rows rows, uint32_t begin, uint32_t end) {
  const uint32_t outputs = rows.count * (end - begin);
  if (rows.first < last_band_.first) {
    if (!counts_.Finish(rows.tile(), outputs)) return;
    const RowNorm& norm = last_band_.norm;
    norm.Run(rows.first, rows.first + rows.count);
    return norm.out.GatherResiduals(rows.first, rows.first + rows.count);
  }
  if (!counts_.Finish(last_band_.first / kTileRows, outputs)) return;
  const uint32_t left = last_band_.norm.x.rows() - last_band_.first;
  pool_.Then((left + kPieceRows - 1) / kPieceRows, last_band_);
}

void NormEpilogue::Pieces::operator()(uint32_t piece) const {
  const uint32_t begin = first + piece * kPieceRows;
  norm.Run(begin, std::min(begin + kPieceRows, norm.x.rows()));
}

}  // namespace baton::kernels::cpu
