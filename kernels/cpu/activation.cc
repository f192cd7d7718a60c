#include "kernels/cpu/activation.h"

#include <algorithm>

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

// left = x - scale * q.
void Residual(const float* __restrict x, const int8_t* __restrict q, const float* __restrict scale,
              uint32_t blocks, float* __restrict left) {
  for (uint32_t b = 0; b < blocks; ++b) {
    for (uint32_t i = b * kBlock; i < (b + 1) * kBlock; ++i) {
      left[i] = x[i] - scale[b] * static_cast<float>(q[i]);
    }
  }
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
  if ((forms & kResidual) != 0) BATON_CHECK((forms & kInt8) != 0);
  if ((forms & kFloat) != 0 && values_.empty()) values_ = AlignedArray<float>(values);
  const auto take_int8 = [&](QuantizedStore<int8_t>& store) {
    store.q = AlignedArray<int8_t>(values);
    store.scale = AlignedArray<float>(scales);
    store.scaled_sum = AlignedArray<float>(scales);
    store.centre = AlignedArray<int32_t>(scales);
  };
  if ((forms & kInt8) != 0 && int8_.q.empty()) take_int8(int8_);
  if ((forms & kResidual) != 0 && residual_.q.empty()) take_int8(residual_);
  if ((forms & kInt16) != 0 && int16_.q.empty()) {
    int16_.q = AlignedArray<int16_t>(values);
    int16_.scale = AlignedArray<float>(scales);
  }
  forms_ = forms;
}

QuantizedRows<int8_t> CpuActivation::int8_rows(uint32_t first_row) const {
  return View(int8_, first_row, blocks());
}

QuantizedRows<int8_t> CpuActivation::residual_rows(uint32_t first_row) const {
  return View(residual_, first_row, blocks());
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
  if ((forms_ & kResidual) != 0) {
    for (uint32_t r = 0; r < rows; ++r) {
      QuantizeResidual(tier, x + r * x_stride, first_row + r, first_block, count);
    }
  }
}

void CpuActivation::QuantizeResidual(const Tier& tier, const float* x, uint32_t row,
                                     uint32_t first_block, uint32_t count) {
  constexpr uint32_t kBlocksAtATime = 32;
  const QuantizedRows<int8_t> coarse = int8_rows(row);
  float left[kBlocksAtATime * kBlock];
  for (uint32_t done = 0; done < count; done += kBlocksAtATime) {
    auto target = Target(residual_, row, first_block + done, blocks());
    target.x = left;
    target.rows = 1;
    target.blocks = std::min(count - done, kBlocksAtATime);
    const size_t at = first_block + done;
    Residual(x + size_t{done} * kBlock, coarse.q + at * kBlock, coarse.scale + at, target.blocks,
             left);
    tier.quantize_int8(target);
  }
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
