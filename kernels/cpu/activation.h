// Activations of the cpu backend: float rows and, where a consumer asked, their quantised forms.
#ifndef BATON_KERNELS_CPU_ACTIVATION_H_
#define BATON_KERNELS_CPU_ACTIVATION_H_

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

// A set of the forms in which a weight can want its input. With kInt8 there may be a residual: what
// int8 left over, as int8 again, of the blocks that stand out of their row (docs/numerics.md).
enum Form : uint32_t {
  kFloat = 1,
  kInt8 = 2,
  kInt16 = 4,
  kResidual = 8,        // of blocks that stand out
  kResidualOfFew = 16,  // of those that do by far
};
using Forms = uint32_t;

// Rows that one panel meets before the next panel is taken.
inline constexpr uint32_t kTileRows = 48;

// Zeroed, on a cache line of its own, so that threads that write neighbouring columns of a row
// share no line.
template <typename T>
class AlignedArray {
 public:
  AlignedArray() = default;
  explicit AlignedArray(size_t n)
      : data_(static_cast<T*>(::operator new(n * sizeof(T), kAlignment))) {
    std::uninitialized_fill_n(data_.get(), n, T{});
  }
  bool empty() const { return data_ == nullptr; }
  T* get() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{128};
  struct Free {
    void operator()(T* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
};

template <typename Q>
struct QuantizedStore {
  AlignedArray<Q> q;
  AlignedArray<float> scale;
  AlignedArray<float> scaled_sum;  // this and `centre`: int8 only
  AlignedArray<int32_t> centre;
};

// What a tile of rows holds beside int8: the blocks of which some row has a residual, ascending,
// and rows of these blocks alone, zero where a row has none.
struct ResidualTile {
  std::span<const uint32_t> blocks;
  QuantizedRows<int8_t> rows;
};

// Memory for a form is taken when the form is first wanted.
class CpuActivation final : public Activation {
 public:
  CpuActivation(uint32_t max_rows, uint32_t cols) : Activation(max_rows, cols) {}

  // Makes room for `forms` and says that the next rows written hold exactly these.
  void SetForms(Forms forms);
  Forms forms() const { return forms_; }

  uint32_t blocks() const { return cols() / kBlock; }
  float* values(uint32_t row) { return values_.get() + size_t{row} * cols(); }
  const float* values(uint32_t row) const { return values_.get() + size_t{row} * cols(); }

  QuantizedRows<int8_t> int8_rows(uint32_t first_row) const;
  QuantizedRows<int16_t> int16_rows(uint32_t first_row) const;

  // Quantises x [rows, 32 * blocks] into columns from 32 * first_block on, into every quantised
  // form that is set. Threads may write different rows or blocks at the same time; a residual
  // wants whole rows.
  void Quantize(const Tier& tier, const float* x, size_t x_stride, uint32_t first_row,
                uint32_t rows, uint32_t first_block, uint32_t blocks);

  // Gathers the residuals, if there are any, of the tiles from row `first` (a multiple of
  // kTileRows) to row `end`, which have been quantised. Once for each tile, by one thread.
  void GatherResiduals(uint32_t first, uint32_t end);
  // Of the tile that begins at `first_row`, gathered.
  ResidualTile residual(uint32_t first_row) const;

  std::vector<double> Read(uint32_t row) const;

 private:
  void QuantizeResidual(const Tier& tier, const float* x, uint32_t row);
  void GatherTile(uint32_t first, uint32_t end);

  Forms forms_ = 0;
  AlignedArray<float> values_;
  QuantizedStore<int8_t> int8_;
  QuantizedStore<int8_t> residual_;     // at its own place; when gathered, in the order of the list
  AlignedArray<uint8_t> has_residual_;  // [row][block]
  AlignedArray<uint32_t> residual_blocks_;  // [tile][blocks()]
  std::vector<uint32_t> residual_counts_;   // [tile]
  QuantizedStore<int16_t> int16_;
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_ACTIVATION_H_
