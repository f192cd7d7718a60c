#include "kernels/reference/matrix.h"

#include <algorithm>

#include "common/check.h"

namespace baton::kernels::reference {
namespace {

// Four rows share each weight, which is what makes a long prompt bearable.
template <uint32_t kRows>
void MultiplyTile(const float* panel, uint32_t inputs, const double* x,
                  double (&sums)[4][Matrix::kPanel]) {
  double tile[kRows][Matrix::kPanel] = {};
  for (uint32_t k = 0; k < inputs; ++k) {
    const float* w = panel + size_t{k} * Matrix::kPanel;
    for (uint32_t r = 0; r < kRows; ++r) {
      const double value = x[size_t{r} * inputs + k];
      for (uint32_t j = 0; j < Matrix::kPanel; ++j) tile[r][j] += w[j] * value;
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) std::copy(tile[r], tile[r] + Matrix::kPanel, sums[r]);
}

}  // namespace

void Matrix::SetRow(uint32_t output, std::span<const float> row) {
  BATON_CHECK(output < outputs_ && row.size() == inputs_);
  for (uint32_t k = 0; k < inputs_; ++k) values_[Index(output, k)] = row[k];
}

void Matrix::Multiply(uint32_t first_panel, uint32_t last_panel, const double* x, uint32_t rows,
                      double* y) const {
  for (uint32_t panel = first_panel; panel < last_panel; ++panel) {
    const float* weights = values_.data() + size_t{panel} * inputs_ * kPanel;
    const uint32_t first = panel * kPanel;
    const uint32_t width = std::min(kPanel, outputs_ - first);
    for (uint32_t r = 0; r < rows; r += 4) {
      const uint32_t count = std::min(4u, rows - r);
      double sums[4][kPanel];
      const double* in = x + size_t{r} * inputs_;
      switch (count) {
        case 4:
          MultiplyTile<4>(weights, inputs_, in, sums);
          break;
        case 3:
          MultiplyTile<3>(weights, inputs_, in, sums);
          break;
        case 2:
          MultiplyTile<2>(weights, inputs_, in, sums);
          break;
        default:
          MultiplyTile<1>(weights, inputs_, in, sums);
      }
      for (uint32_t i = 0; i < count; ++i) {
        std::copy(sums[i], sums[i] + width, y + size_t{r + i} * outputs_ + first);
      }
    }
  }
}

}  // namespace baton::kernels::reference
