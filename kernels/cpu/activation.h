// Activations of the cpu backend: float rows and, where a consumer asked, their quantised forms.
#ifndef BATON_KERNELS_CPU_ACTIVATION_H_
#define BATON_KERNELS_CPU_ACTIVATION_H_

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

// A set of the forms in which a weight can want its input.
// kResidual, with kInt8: what int8 left over, as int8 again.
enum Form : uint32_t { kFloat = 1, kInt8 = 2, kInt16 = 4, kResidual = 8 };
using Forms = uint32_t;

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
  QuantizedRows<int8_t> residual_rows(uint32_t first_row) const;
  QuantizedRows<int16_t> int16_rows(uint32_t first_row) const;

  // Quantises x [rows, 32 * blocks] into columns from 32 * first_block on, into every quantised
  // form that is set. Threads may write different rows or blocks at the same time.
  void Quantize(const Tier& tier, const float* x, size_t x_stride, uint32_t first_row,
                uint32_t rows, uint32_t first_block, uint32_t blocks);

  std::vector<double> Read(uint32_t row) const;

 private:
  void QuantizeResidual(const Tier& tier, const float* x, uint32_t row, uint32_t first_block,
                        uint32_t count);

  Forms forms_ = 0;
  AlignedArray<float> values_;
  QuantizedStore<int8_t> int8_;
  QuantizedStore<int8_t> residual_;
  QuantizedStore<int16_t> int16_;
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_ACTIVATION_H_
