#include "kernels/cpu/activation.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"

namespace baton::kernels::cpu {
namespace {

template <typename Q>
QuantizeRows<Q> Target(QuantizedStore<Q>& store, uint32_t row, uint32_t first_block,
                       uint32_t blocks) {
  QuantizeRows<Q> target;
  target.q_stride = size_t{blocks} * kBlock;
  target.scale_stride = blocks;
  target.q = store.q.get() + row * target.q_stride + size_t{first_block} * kBlock;
  const size_t at = size_t{row} * blocks + first_block;
  target.scale = store.scale.get() + at;
  if (!store.scaled_sum.empty()) target.scaled_sum = store.scaled_sum.get() + at;
  if (!store.centre.empty()) target.centre = store.centre.get() + at;
  return target;
}

template <typename Q>
QuantizedRows<Q> View(const QuantizedStore<Q>& store, uint32_t row, uint32_t blocks) {
  QuantizedRows<Q> view;
  view.q_stride = size_t{blocks} * kBlock;
  view.scale_stride = blocks;
  const size_t at = size_t{row} * blocks;
  view.q = store.q.get() + row * view.q_stride;
  view.scale = store.scale.get() + at;
  if (!store.scaled_sum.empty()) view.scaled_sum = store.scaled_sum.get() + at;
  if (!store.centre.empty()) view.centre = store.centre.get() + at;
  return view;
}

// A block stands out when the square of its scale is so many times the mean of its row.
constexpr float kStandsOut = 4;
constexpr float kStandsOutByFar = 8;

// left = x - scale * q.
void Residual(const float* __restrict x, const int8_t* __restrict q, float scale,
              float* __restrict left) {
  for (uint32_t i = 0; i < kBlock; ++i) left[i] = x[i] - scale * static_cast<float>(q[i]);
}

template <typename Q>
void ReadQuantized(const QuantizedRows<Q>& in, std::vector<double>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<double>(in.scale[i / kBlock]) * static_cast<double>(in.q[i]);
  }
}

}  // namespace

void CpuActivation::SetForms(Forms forms) {
  const size_t values = size_t{max_rows()} * cols();
  const size_t scales = size_t{max_rows()} * blocks();
  if ((forms & (kInt8 | kInt16)) != 0) BATON_CHECK(cols() % kBlock == 0);
  const bool residual = (forms & (kResidual | kResidualOfFew)) != 0;
  if (residual) BATON_CHECK((forms & kInt8) != 0);
  if ((forms & kFloat) != 0 && values_.empty()) values_ = AlignedArray<float>(values);
  const auto take_int8 = [&](QuantizedStore<int8_t>& store) {
    store.q = AlignedArray<int8_t>(values);
    store.scale = AlignedArray<float>(scales);
    store.scaled_sum = AlignedArray<float>(scales);
    store.centre = AlignedArray<int32_t>(scales);
  };
  if ((forms & kInt8) != 0 && int8_.q.empty()) take_int8(int8_);
  if (residual && residual_.q.empty()) {
    take_int8(residual_);
    has_residual_ = AlignedArray<uint8_t>(scales);
    const uint32_t tiles = (max_rows() + kTileRows - 1) / kTileRows;
    residual_blocks_ = AlignedArray<uint32_t>(size_t{tiles} * blocks());
    residual_counts_.resize(tiles);
  }
  if ((forms & kInt16) != 0 && int16_.q.empty()) {
    int16_.q = AlignedArray<int16_t>(values);
    int16_.scale = AlignedArray<float>(scales);
  }
  forms_ = forms;
}

QuantizedRows<int8_t> CpuActivation::int8_rows(uint32_t first_row) const {
  return View(int8_, first_row, blocks());
}

QuantizedRows<int16_t> CpuActivation::int16_rows(uint32_t first_row) const {
  return View(int16_, first_row, blocks());
}

void CpuActivation::Quantize(const Tier& tier, const float* x, size_t x_stride, uint32_t first_row,
                             uint32_t rows, uint32_t first_block, uint32_t count) {
  const auto run = [&](auto target, auto kernel) {
    target.x = x;
    target.x_stride = x_stride;
    target.rows = rows;
    target.blocks = count;
    kernel(target);
  };
  if ((forms_ & kInt8) != 0) {
    run(Target(int8_, first_row, first_block, blocks()), tier.quantize_int8);
  }
  if ((forms_ & kInt16) != 0) {
    run(Target(int16_, first_row, first_block, blocks()), tier.quantize_int16);
  }
  if ((forms_ & (kResidual | kResidualOfFew)) == 0) return;
  BATON_CHECK(first_block == 0 && count == blocks());
  for (uint32_t r = 0; r < rows; ++r) QuantizeResidual(tier, x + r * x_stride, first_row + r);
}

void CpuActivation::QuantizeResidual(const Tier& tier, const float* x, uint32_t row) {
  const QuantizedRows<int8_t> coarse = int8_rows(row);
  float squares = 0;
  for (uint32_t b = 0; b < blocks(); ++b) squares += coarse.scale[b] * coarse.scale[b];
  const float least = ((forms_ & kResidual) != 0 ? kStandsOut : kStandsOutByFar) * squares;
  uint8_t* has = has_residual_.get() + size_t{row} * blocks();
  for (uint32_t b = 0; b < blocks(); ++b) {
    const float square = coarse.scale[b] * coarse.scale[b];
    has[b] = square > 0 && square * static_cast<float>(blocks()) >= least;
    if (has[b] == 0) continue;
    float left[kBlock];
    Residual(x + size_t{b} * kBlock, coarse.q + size_t{b} * kBlock, coarse.scale[b], left);
    auto target = Target(residual_, row, b, blocks());
    target.x = left;
    target.rows = target.blocks = 1;
    tier.quantize_int8(target);
  }
}

void CpuActivation::GatherResiduals(uint32_t first, uint32_t end) {
  if ((forms_ & (kResidual | kResidualOfFew)) == 0) return;
  for (; first < end; first += kTileRows) GatherTile(first, std::min(first + kTileRows, end));
}

// In place: the i-th block of the list moves from behind to place i, or stays.
void CpuActivation::GatherTile(uint32_t first, uint32_t end) {
  const uint32_t tile = first / kTileRows;
  uint32_t* list = residual_blocks_.get() + size_t{tile} * blocks();
  uint32_t count = 0;
  const uint8_t* has = has_residual_.get();
  for (uint32_t b = 0; b < blocks(); ++b) {
    uint8_t any = 0;
    for (uint32_t row = first; row < end; ++row) any |= has[size_t{row} * blocks() + b];
    if (any != 0) list[count++] = b;
  }
  residual_counts_[tile] = count;
  for (uint32_t row = first; row < end; ++row) {
    for (uint32_t i = 0; i < count; ++i) {
      const QuantizeRows<int8_t> to = Target(residual_, row, i, blocks());
      if (has[size_t{row} * blocks() + list[i]] == 0) {
        std::memset(to.q, 0, kBlock);
        *to.scale = *to.scaled_sum = 0;
        *to.centre = 0;
        continue;
      }
      const QuantizeRows<int8_t> from = Target(residual_, row, list[i], blocks());
      std::memmove(to.q, from.q, kBlock);
      *to.scale = *from.scale;
      *to.scaled_sum = *from.scaled_sum;
      *to.centre = *from.centre;
    }
  }
}

ResidualTile CpuActivation::residual(uint32_t first_row) const {
  const uint32_t tile = first_row / kTileRows;
  return {{residual_blocks_.get() + size_t{tile} * blocks(), residual_counts_[tile]},
          View(residual_, first_row, blocks())};
}

std::vector<double> CpuActivation::Read(uint32_t row) const {
  std::vector<double> out(cols());
  if ((forms_ & kFloat) != 0) {
    out.assign(values(row), values(row) + cols());
  } else if ((forms_ & kInt16) != 0) {
    ReadQuantized(int16_rows(row), out);
  } else if ((forms_ & kInt8) != 0) {
    ReadQuantized(int8_rows(row), out);
  }
  return out;
}

}  // namespace baton::kernels::cpu
