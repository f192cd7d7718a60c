// A weight matrix of the reference backend, and the one product it takes part in.
#ifndef BATON_KERNELS_REFERENCE_MATRIX_H_
#define BATON_KERNELS_REFERENCE_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace baton::kernels::reference {

// [outputs, inputs], kept in panels of kPanel outputs, [panel][input][kPanel], so that the product
// runs over outputs side by side and each output's sum stays one chain of ascending inputs.
class Matrix {
 public:
  static constexpr uint32_t kPanel = 4;

  Matrix(uint32_t outputs, uint32_t inputs)
      : outputs_(outputs), inputs_(inputs), values_(size_t{panels()} * inputs * kPanel) {}

  uint32_t outputs() const { return outputs_; }
  uint32_t inputs() const { return inputs_; }
  uint32_t panels() const { return (outputs_ + kPanel - 1) / kPanel; }

  float At(uint32_t output, uint32_t input) const { return values_[Index(output, input)]; }
  void SetRow(uint32_t output, std::span<const float> row);

  // y[r][n] = sum over k of W[n][k] * x[r][k], for the outputs of panels [first, last).
  // x is [rows, inputs()], y is [rows, outputs()].
  void Multiply(uint32_t first_panel, uint32_t last_panel, const double* x, uint32_t rows,
                double* y) const;

 private:
  size_t Index(uint32_t output, uint32_t input) const {
    return (size_t{output / kPanel} * inputs_ + input) * kPanel + output % kPanel;
  }

  const uint32_t outputs_;
  const uint32_t inputs_;
  std::vector<float> values_;
};

}  // namespace baton::kernels::reference

#endif  // BATON_KERNELS_REFERENCE_MATRIX_H_
