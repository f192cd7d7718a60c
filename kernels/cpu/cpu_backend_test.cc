// The backend against plain double arithmetic, and the promise that a row's bits depend on nothing
// but the row: not on the tier, the thread count, its batch mates or the chunking of its prompt.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/cpu/backend_fixture.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/testing.h"
#include "kernels/cpu/tiers.h"
#include "kernels/cpu/weight.h"

namespace baton::kernels::cpu {
namespace {

// sum |w| * (half a quantisation step of its activation block) plus float accumulation.
double LinearTolerance(TensorType type, const float* w, const std::vector<double>& x) {
  const bool nibbles = type == TensorType::kQ4_0 || type == TensorType::kQ4_1;
  const double steps = nibbles ? 127 : type == TensorType::kQ8_0 ? 32767 : 1e30;
  double tolerance = 1e-30;
  for (size_t b = 0; b < x.size(); b += 32) {
    double largest = 0;
    double sum = 0;
    double products = 0;
    for (size_t i = b; i < std::min(b + 32, x.size()); ++i) {
      largest = std::max(largest, std::abs(x[i]));
      sum += std::abs(w[i]);
      products += std::abs(w[i] * x[i]);
    }
    // Q4_1's nibbles and minima are rounded together with the scale: twice the weights' size.
    tolerance += sum * largest / steps * 0.51 + products * 4e-6 + 16 * largest * 0.05 * 4e-6;
  }
  return tolerance;
}

TEST(CpuLinearTest, EveryTypeAndAnyShapeIsCloseToExactArithmetic) {
  std::mt19937_64 random(1);
  for (const auto& configuration : {kConfigurations[0], kConfigurations[2]}) {
    Fixture f(configuration);
    for (TensorType type : kAllTypes) {
      for (const auto& [rows, outputs, inputs] :
           {std::array<uint32_t, 3>{1, 40, 64}, {9, 16, 32}, {70, 7, 96}, {3, 100, 576}}) {
        const auto tensor = RandomTensor(random, type, outputs, inputs);
        const auto w = PackOne(*f.backend, tensor);
        auto x = f.Rows(RandomFloats(random, size_t{rows} * inputs), inputs);
        auto h = f.backend->NewActivation(rows, inputs);
        const auto gain = f.Gain(std::vector<float>(inputs, 1.0f));
        f.backend->Norm(*x, {*gain, 0, *w}, *h);
        auto out = f.backend->NewActivation(rows, outputs);
        f.backend->Linear(*w, *h, *out);
        const auto weights = tensor.Values();
        for (uint32_t r = 0; r < rows; ++r) {
          const auto in = f.backend->Read(*h, r);
          const auto actual = f.backend->Read(*out, r);
          for (uint32_t n = 0; n < outputs; ++n) {
            const float* row = &weights[size_t{n} * inputs];
            double exact = 0;
            for (uint32_t k = 0; k < inputs; ++k) exact += row[k] * in[k];
            ASSERT_NEAR(actual[n], exact, LinearTolerance(type, row, in))
                << InfoOf(type)->name << " row " << r << " output " << n;
          }
        }
      }
    }
  }
}

TEST(CpuLinearTest, EmbedReadsEveryTypeExactly) {
  std::mt19937_64 random(2);
  Fixture f(kConfigurations[1]);
  for (TensorType type : kAllTypes) {
    const auto tensor = RandomTensor(random, type, 37, 96);
    auto x = f.backend->NewActivation(4, 96);
    f.backend->Embed(*PackOne(*f.backend, tensor), std::vector<TokenId>{36, 0, 17, 17}, *x);
    const auto values = tensor.Values();
    for (uint32_t k = 0; k < 96; ++k) {
      EXPECT_EQ(f.backend->Read(*x, 0)[k], values[36 * 96 + k]);
      EXPECT_EQ(f.backend->Read(*x, 3)[k], values[17 * 96 + k]);
    }
  }
}

TEST(CpuNormTest, IsRmsNorm) {
  std::mt19937_64 random(3);
  Fixture f(kConfigurations[1]);
  for (uint32_t cols : {1u, 15u, 64u, 100u}) {
    const auto values = RandomFloats(random, 3 * cols, 5);
    const auto gain = RandomFloats(random, cols);
    const auto w = PackOne(*f.backend, RandomTensor(random, TensorType::kF32, 4, cols));
    auto x = f.Rows(values, cols);
    auto h = f.backend->NewActivation(3, cols);
    const auto packed_gain = f.Gain(gain);
    f.backend->Norm(*x, {*packed_gain, 1e-5f, *w}, *h);
    for (uint32_t r = 0; r < 3; ++r) {
      double sum = 0;
      for (uint32_t k = 0; k < cols; ++k) sum += std::pow(values[r * cols + k], 2.0);
      for (uint32_t k = 0; k < cols; ++k) {
        const double exact = values[r * cols + k] / std::sqrt(sum / cols + 1e-5f) * gain[k];
        EXPECT_NEAR(f.backend->Read(*h, r)[k], exact, std::abs(exact) * 1e-6);
      }
    }
  }
}

// A feed-forward and a joined projection with parts of different types: all operations but
// attention, on `rows` rows of the same seeded numbers.
std::vector<double> FeedForward(const Configuration& configuration, TensorType type,
                                const std::vector<float>& values, uint32_t first, uint32_t rows,
                                bool fused = true) {
  constexpr uint32_t kCols = 96;
  constexpr uint32_t kHidden = 160;
  std::mt19937_64 random(4);
  Fixture f(configuration);
  const auto gate = RandomTensor(random, type, kHidden, kCols);
  const auto up = RandomTensor(random, type, kHidden, kCols);
  const RawTensor pair[] = {gate.raw(), up.raw()};
  const auto gate_up = *f.backend->Pack(pair, PartOrder::kGateUp);
  const auto down = PackOne(*f.backend, RandomTensor(random, type, kCols, kHidden));
  const auto q = RandomTensor(random, type, 70, kCols);
  const auto k = RandomTensor(random, TensorType::kQ8_0, 9, kCols);
  const RawTensor joined_parts[] = {q.raw(), k.raw()};
  const auto joined = *f.backend->Pack(joined_parts, PartOrder::kConcatenated);
  const auto gain = f.Gain(RandomFloats(random, kCols));
  auto x = f.Rows({values.begin() + first * kCols, values.begin() + (first + rows) * kCols}, kCols);
  auto h = f.backend->NewActivation(rows, kCols);
  auto hidden = f.backend->NewActivation(rows, kHidden);
  auto out = f.backend->NewActivation(rows, 79);
  f.backend->Norm(*x, {*gain, 1e-5f, *gate_up}, *h);
  f.backend->GatedLinear(*gate_up, *h, *down, *hidden);
  if (fused) {
    f.backend->LinearAddNorm(*down, *hidden, *x, {*gain, 1e-5f, *joined}, *h);
  } else {
    f.backend->LinearAdd(*down, *hidden, *x);
    f.backend->Norm(*x, {*gain, 1e-5f, *joined}, *h);
  }
  f.backend->Linear(*joined, *h, *out);
  auto all = f.All(*out);
  const auto residual = f.All(*x);
  all.insert(all.end(), residual.begin(), residual.end());
  return all;
}

TEST(CpuBackendTest, RowsHaveTheSameBitsOnEveryTierAndThreadCountAndInAnyCompany) {
  std::mt19937_64 random(5);
  const auto values = RandomFloats(random, 41 * 96);
  for (TensorType type : kAllTypes) {
    const auto expected = FeedForward(kConfigurations[0], type, values, 0, 41, false);
    for (const auto& configuration : kConfigurations) {
      EXPECT_EQ(FeedForward(configuration, type, values, 0, 41), expected);
      for (const auto& [first, rows] : {std::pair<uint32_t, uint32_t>{0, 1}, {3, 7}, {40, 1}}) {
        const auto part = FeedForward(configuration, type, values, first, rows);
        EXPECT_TRUE(std::equal(part.begin(), part.begin() + rows * 79, &expected[first * 79]));
        EXPECT_TRUE(
            std::equal(part.begin() + rows * 79, part.end(), &expected[41 * 79 + first * 96]));
      }
    }
  }
}

// Rows of which a block or two, any ones, are much larger than the rest.
std::vector<float> RowsThatStandOut(std::mt19937_64& random, uint32_t rows, uint32_t cols) {
  auto values = RandomFloats(random, size_t{rows} * cols);
  const auto enlarge = [&](uint32_t row, float times) {
    float* block = &values[size_t{row} * cols + random() % (cols / 32) * 32];
    for (uint32_t i = 0; i < 32; ++i) block[i] *= times;
  };
  for (uint32_t row = 0; row < rows; ++row) {
    enlarge(row, 20);
    if (row % 2 == 1) enlarge(row, 15);
  }
  return values;
}

// Q, k, v and a feed-forward's inner product of normed rows, as the layers have them.
std::vector<double> Projections(const Configuration& configuration, TensorType type, uint32_t cols,
                                const std::vector<float>& values, bool fused) {
  constexpr uint32_t kOutputs = 38;
  std::mt19937_64 random(14);
  Fixture f(configuration);
  const auto a = RandomTensor(random, type, kOutputs, cols);
  const auto b = RandomTensor(random, type, kOutputs, cols);
  const RawTensor raw[] = {a.raw(), b.raw()};
  const auto gain = f.Gain(std::vector<float>(cols, 1.0f));
  auto x = f.Rows(values, cols);
  const uint32_t rows = x->rows();
  auto h = f.backend->NewActivation(rows, cols);
  auto out = f.backend->NewActivation(rows, 2 * kOutputs);
  auto gated = f.backend->NewActivation(rows, kOutputs);
  auto nothing = f.Rows(std::vector<float>(size_t{rows} * 32), 32);
  const auto zero = PackOne(*f.backend, Table(std::vector<float>(size_t{cols} * 32), 32));
  const auto norm = [&](const PackedWeight& consumer) {
    const NormCall call{*gain, 0, consumer};
    if (fused) return f.backend->LinearAddNorm(*zero, *nothing, *x, call, *h);
    f.backend->Norm(*x, call, *h);
  };
  const auto qkv = *f.backend->Pack(raw, PartOrder::kQueryKeyValue);
  norm(*qkv);
  f.backend->Linear(*qkv, *h, *out);
  auto all = f.All(*out);
  const auto gate_up = *f.backend->Pack(raw, PartOrder::kGateUp);
  const auto consumer = PackOne(*f.backend, RandomTensor(random, TensorType::kF32, 4, kOutputs));
  norm(*gate_up);
  f.backend->GatedLinear(*gate_up, *h, *consumer, *gated);
  const auto inner = f.All(*gated);
  all.insert(all.end(), inner.begin(), inner.end());
  return all;
}

// A tile of rows is multiplied with the residuals of all its rows.
TEST(CpuBackendTest, ARowsResidualIsItsOwnInAnyCompany) {
  constexpr uint32_t kCols = 640;
  constexpr uint32_t kRows = 103;  // more than a band
  std::mt19937_64 random(15);
  const auto values = RowsThatStandOut(random, kRows, kCols);
  for (TensorType type : {TensorType::kQ4_0, TensorType::kQ4_1}) {
    const auto expected = Projections(kConfigurations[0], type, kCols, values, false);
    for (const auto& configuration : kConfigurations) {
      EXPECT_EQ(Projections(configuration, type, kCols, values, true), expected);
      for (uint32_t row : {0u, 47u, 48u, 102u}) {
        const std::vector<float> alone(&values[row * kCols], &values[row * kCols] + kCols);
        const auto part = Projections(configuration, type, kCols, alone, false);
        EXPECT_TRUE(std::equal(part.begin(), part.begin() + 76, &expected[row * 76]));
        EXPECT_TRUE(std::equal(part.begin() + 76, part.end(), &expected[kRows * 76 + row * 38]));
      }
    }
  }
}

TEST(CpuLinearTest, AResidualTakesMostOfTheErrorOfRowsThatStandOut) {
  constexpr uint32_t kCols = 640;
  constexpr uint32_t kRows = 20;
  std::mt19937_64 random(16);
  Fixture f(kConfigurations[2]);
  const auto values = RowsThatStandOut(random, kRows, kCols);
  const auto gain = f.Gain(std::vector<float>(kCols, 1.0f));
  const auto exact_input = PackOne(*f.backend, RandomTensor(random, TensorType::kF32, 4, kCols));
  for (TensorType type : {TensorType::kQ4_0, TensorType::kQ4_1}) {
    const auto tensor = RandomTensor(random, type, 40, kCols);
    const auto weights = tensor.Values();
    auto x = f.Rows(values, kCols);
    auto h = f.backend->NewActivation(kRows, kCols);
    f.backend->Norm(*x, {*gain, 0, *exact_input}, *h);
    const auto exact = f.All(*h);
    const auto error = [&](PartOrder order) {
      const RawTensor raw = tensor.raw();
      const auto w = *f.backend->Pack({&raw, 1}, order);
      auto out = f.backend->NewActivation(kRows, 40);
      f.backend->Norm(*x, {*gain, 0, *w}, *h);
      f.backend->Linear(*w, *h, *out);
      double squares = 0;
      for (uint32_t r = 0; r < kRows; ++r) {
        const auto row = f.backend->Read(*out, r);
        for (uint32_t n = 0; n < 40; ++n) {
          double sum = 0;
          for (uint32_t k = 0; k < kCols; ++k) sum += weights[n * kCols + k] * exact[r * kCols + k];
          squares += (row[n] - sum) * (row[n] - sum);
        }
      }
      return std::sqrt(squares);
    };
    EXPECT_LT(error(PartOrder::kQueryKeyValue), 0.3 * error(PartOrder::kConcatenated));
  }
}

TEST(CpuRopeTest, TablesAgreeWithTheMathLibrary) {
  for (double x : {-30.0, -9.2103, -1.0, -0.3, 0.0, 0.7, 12.0}) {
    EXPECT_NEAR(ExactExp(x) / std::exp(x), 1, 4e-16);
  }
  for (double angle = 0; angle < 140000; angle = angle * 1.01 + 0.013) {
    EXPECT_NEAR(ExactSinCos(angle).sin, std::sin(angle), 3e-16);
    EXPECT_NEAR(ExactSinCos(angle).cos, std::cos(angle), 3e-16);
  }
}

TEST(CpuRopeTest, RotatesPairsByTheirFrequency) {
  for (auto pairing : {RopeSpec::Pairing::kNeighbours, RopeSpec::Pairing::kHalves}) {
    const CpuRope rope({.pairing = pairing, .dims = 6, .context = 5000, .base = 100000});
    const std::vector<float> head = {1, 2, 3, 4, 5, 6, 7, 8};
    for (uint32_t position : {0u, 1u, 17u, 4999u}) {
      auto actual = head;
      rope.Rotate(*FindTier("scalar")->tier, position, actual.data());
      for (uint32_t i = 0; i < 3; ++i) {
        const bool neighbours = pairing == RopeSpec::Pairing::kNeighbours;
        const size_t a = neighbours ? 2 * i : i;
        const size_t b = neighbours ? 2 * i + 1 : i + 3;
        const double angle = position * std::pow(100000.0, -2.0 * i / 6);
        EXPECT_NEAR(actual[a], head[a] * std::cos(angle) - head[b] * std::sin(angle), 2e-6);
        EXPECT_NEAR(actual[b], head[a] * std::sin(angle) + head[b] * std::cos(angle), 2e-6);
      }
      EXPECT_EQ(actual[6], 7);
      EXPECT_EQ(actual[7], 8);
    }
  }
}

TEST(CpuPackTest, ResidualsAreOfQueryKeyValueAndUpWithFourBits) {
  Fixture f(kConfigurations[1]);
  std::mt19937_64 random(17);
  const auto residuals = [&](TensorType type, PartOrder order) {
    const OwnedTensor tensor = RandomTensor(random, type, 4, 64);
    const RawTensor raw[] = {tensor.raw(), tensor.raw()};
    const auto packed = *f.backend->Pack(raw, order);
    const auto& parts = static_cast<const CpuWeight&>(*packed).parts();
    return std::vector<Forms>{parts[0].residual, parts[1].residual};
  };
  using Each = std::vector<Forms>;
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ4_1}) {
    EXPECT_EQ(residuals(type, PartOrder::kQueryKeyValue), Each({kResidual, kResidual}));
    EXPECT_EQ(residuals(type, PartOrder::kGateUp), Each({0, kResidualOfFew}));
    EXPECT_EQ(residuals(type, PartOrder::kConcatenated), Each({0, 0}));
  }
  EXPECT_EQ(residuals(TensorType::kQ8_0, PartOrder::kGateUp), Each({0, 0}));
}

TEST(CpuPackTest, RefusesWhatItCannotRead) {
  Fixture f(kConfigurations[1]);
  std::mt19937_64 random(12);
  OwnedTensor tensor = RandomTensor(random, TensorType::kQ4_1, 4, 64);
  const auto code = [&](RawTensor raw) {
    return f.backend->Pack({&raw, 1}, PartOrder::kConcatenated).status().code();
  };
  RawTensor raw = tensor.raw();
  EXPECT_EQ(code(raw), absl::StatusCode::kOk);
  raw.type = static_cast<TensorType>(12);
  EXPECT_EQ(code(raw), absl::StatusCode::kUnimplemented);
  raw = tensor.raw();
  raw.bytes = raw.bytes.first(raw.bytes.size() - 1);
  EXPECT_EQ(code(raw), absl::StatusCode::kInvalidArgument);
  raw = tensor.raw();
  raw.cols = 63;
  EXPECT_EQ(code(raw), absl::StatusCode::kInvalidArgument);
  raw.rows = 0;
  EXPECT_EQ(code(raw), absl::StatusCode::kInvalidArgument);
}

TEST(CpuSampleTest, EachRowHasItsOwnParametersAndErrors) {
  Fixture f(kConfigurations[2]);
  auto logits = f.Rows({0, 5, 1, std::nanf(""), 0, 0, 7, 7, 0}, 3);
  const std::vector<SampleRow> rows = {{2, {}}, {1, {}}, {0, {}}};
  const auto tokens = f.backend->Sample(*logits, rows);
  EXPECT_EQ(tokens[0]->token, 0);
  EXPECT_EQ(tokens[1].status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(tokens[2]->token, 1);
}

}  // namespace
}  // namespace baton::kernels::cpu
