// Which blocks get a residual, and what a tile of rows holds of them. The promise that it makes no
// row depend on another is kept in cpu_backend_test.
#include "kernels/cpu/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/scalar/scalar.h"

namespace baton::kernels::cpu {
namespace {

constexpr uint32_t kBlocks = 16;
constexpr uint32_t kCols = kBlocks * kBlock;
using Row = std::vector<float>;

// Every block has the largest value 1 and others that int8 does not hold exactly.
Row EvenRow() {
  Row row(kCols);
  for (uint32_t i = 0; i < kCols; ++i) {
    row[i] = i % kBlock == 5 ? 1 : 0.37f * std::sin(static_cast<float>(i));
  }
  return row;
}

Row WithBlock(uint32_t block, float times, Row row = EvenRow()) {
  for (uint32_t i = block * kBlock; i < (block + 1) * kBlock; ++i) row[i] *= times;
  return row;
}

CpuActivation Quantized(const std::vector<Row>& rows, Forms form) {
  const auto count = static_cast<uint32_t>(rows.size());
  CpuActivation activation(count, kCols);
  activation.set_rows(count);
  activation.SetForms(kInt8 | form);
  for (uint32_t r = 0; r < count; ++r) {
    activation.Quantize(ScalarTier(), rows[r].data(), kCols, r, 1, 0, kBlocks);
  }
  activation.GatherResiduals(0, count);
  return activation;
}

std::vector<uint32_t> ListOf(const CpuActivation& activation, uint32_t first_row) {
  const auto blocks = activation.residual(first_row).blocks;
  return {blocks.begin(), blocks.end()};
}

// Of 16 blocks of which 15 have the scale s, one with t s has so many times the mean square:
// 16 t^2 / (t^2 + 15). That is 4 at t = 2.236 and 8 at t = 3.873.
TEST(ActivationResidualTest, ABlockHasOneWhenItsScaleStandsOutOfTheRow) {
  using List = std::vector<uint32_t>;
  EXPECT_EQ(ListOf(Quantized({EvenRow()}, kResidual), 0), List());
  EXPECT_EQ(ListOf(Quantized({WithBlock(3, 2.23f)}, kResidual), 0), List());
  EXPECT_EQ(ListOf(Quantized({WithBlock(3, 2.24f)}, kResidual), 0), List({3}));
  EXPECT_EQ(ListOf(Quantized({WithBlock(3, 3.87f)}, kResidualOfFew), 0), List());
  EXPECT_EQ(ListOf(Quantized({WithBlock(3, 3.88f)}, kResidualOfFew), 0), List({3}));
}

TEST(ActivationResidualTest, ATileHoldsTheBlocksOfAllItsRowsAndZerosWhereARowHasNone) {
  std::vector<Row> rows(kTileRows + 3, EvenRow());
  rows[2] = WithBlock(9, 4, WithBlock(1, 4));
  rows[40] = WithBlock(4, 4);
  rows[kTileRows] = WithBlock(15, 4);
  const CpuActivation activation = Quantized(rows, kResidual);
  EXPECT_EQ(ListOf(activation, 0), std::vector<uint32_t>({1, 4, 9}));
  EXPECT_EQ(ListOf(activation, kTileRows), std::vector<uint32_t>({15}));
  const auto coarse = activation.int8_rows(0);
  for (uint32_t row = 0; row < rows.size(); ++row) {
    const ResidualTile tile = activation.residual(row / kTileRows * kTileRows);
    const uint32_t r = row % kTileRows;
    for (uint32_t i = 0; i < tile.blocks.size(); ++i) {
      const uint32_t block = tile.blocks[i];
      const bool has = (row == 2 && block != 4) || (row == 40 && block == 4) || row == kTileRows;
      const float scale = tile.rows.scale[r * tile.rows.scale_stride + i];
      EXPECT_EQ(scale > 0, has) << row << " " << block;
      int sum = 0;
      for (uint32_t k = 0; k < kBlock; ++k) {
        const int q = tile.rows.q[r * tile.rows.q_stride + i * kBlock + k];
        sum += q;
        if (!has) {
          EXPECT_EQ(q, 0);
          continue;
        }
        const uint32_t at = block * kBlock + k;
        const float coarse_scale = coarse.scale[row * coarse.scale_stride + block];
        const auto held = static_cast<float>(coarse.q[row * coarse.q_stride + at]);
        EXPECT_NEAR(coarse_scale * held + scale * static_cast<float>(q), rows[row][at],
                    coarse_scale / 254);
      }
      EXPECT_EQ(tile.rows.scaled_sum[r * tile.rows.scale_stride + i],
                scale * static_cast<float>(sum));
      EXPECT_EQ(tile.rows.centre[r * tile.rows.scale_stride + i], -8 * sum);
    }
  }
}

TEST(ActivationResidualTest, RowsOfZerosOrWithoutNumbersHaveNone) {
  Row strange = WithBlock(3, 4);
  strange[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(ListOf(Quantized({Row(kCols), strange}, kResidual), 0), std::vector<uint32_t>());
}

}  // namespace
}  // namespace baton::kernels::cpu
