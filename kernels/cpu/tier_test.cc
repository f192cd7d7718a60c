// Every tier gives the bits of the scalar tier.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/cpu/packed.h"
#include "kernels/cpu/testing.h"
#include "kernels/cpu/tiers.h"
#if defined(__x86_64__)
#include "kernels/cpu/dot/stand_ins.h"
#endif

namespace baton::kernels::cpu {
namespace {

template <typename T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// A tier to compare with the scalar one.
struct Subject {
  Tier tier;
  bool runs = false;
  std::string needs;
};

std::vector<Subject> Subjects() {
  std::vector<Subject> subjects;
  for (const TierEntry& entry : Tiers()) {
    if (entry.tier != FindTier("scalar")->tier) {
      subjects.push_back({*entry.tier, entry.runs, entry.needs});
    }
  }
#if defined(__x86_64__)
  Tier evex = *FindTier("avxvnni")->tier;
  evex.name = "avxvnni_by_evex";
  evex.linear_q4_0 = EvexLinearQ4_0;
  evex.linear_q4_1 = EvexLinearQ4_1;
  evex.linear_q8_0 = EvexLinearQ8_0;
  subjects.push_back({evex, FindTier("avx512")->runs, FindTier("avx512")->needs});
  Tier model = *FindTier("avxvnni")->tier;
  model.name = "avxvnni_by_model";
  model.linear_q4_0 = ModelLinearQ4_0;
  model.linear_q4_1 = ModelLinearQ4_1;
  model.linear_q8_0 = ModelLinearQ8_0;
  subjects.push_back({model, FindTier("avx2")->runs, FindTier("avx2")->needs});
#endif
  return subjects;
}

class TierTest : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (!GetParam().runs) GTEST_SKIP() << "this processor lacks " << GetParam().needs;
  }
  size_t Below(size_t n) { return random_() % n; }

  std::mt19937_64 random_{42};
  const Tier& scalar_ = *FindTier("scalar")->tier;
  const Tier tier_ = GetParam().tier;
};

INSTANTIATE_TEST_SUITE_P(Tiers, TierTest, testing::ValuesIn(Subjects()),
                         [](const auto& subject) { return std::string(subject.param.tier.name); });

template <typename Q>
struct Quantized {
  std::vector<Q> q;
  std::vector<float> scale;
  std::vector<float> scaled_sum;
  std::vector<int32_t> centre;
  uint32_t rows = 0;
  uint32_t blocks = 0;

  Quantized(uint32_t row_count, uint32_t block_count)
      : q(size_t{row_count} * block_count * kBlock),
        scale(size_t{row_count} * block_count),
        scaled_sum(size_t{row_count} * block_count),
        centre(size_t{row_count} * block_count),
        rows(row_count),
        blocks(block_count) {}

  QuantizedRows<Q> View() const {
    return {q.data(),          size_t{blocks} * kBlock, scale.data(),
            scaled_sum.data(), centre.data(),           blocks};
  }
  QuantizeRows<Q> Target(const std::vector<float>& x) {
    QuantizeRows<Q> target;
    target.x = x.data();
    target.x_stride = target.q_stride = size_t{blocks} * kBlock;
    target.rows = rows;
    target.blocks = target.scale_stride = blocks;
    target.q = q.data();
    target.scale = scale.data();
    target.scaled_sum = scaled_sum.data();
    target.centre = centre.data();
    return target;
  }
  // Every activation is `value`, of scale 1.
  void Fill(Q value) {
    std::fill(q.begin(), q.end(), value);
    std::fill(scale.begin(), scale.end(), 1.0f);
    std::fill(centre.begin(), centre.end(), -8 * 32 * value);
  }
};

template <typename Q>
std::vector<float> RunPanel(void (*kernel)(const QuantizedPanel<Q>&), const void* panel,
                            const Quantized<Q>& in, bool add = false) {
  std::vector<float> out(size_t{in.rows} * kPanel, -1.7f);
  QuantizedPanel<Q> args;
  args.panel = static_cast<const uint8_t*>(panel);
  args.blocks = in.blocks;
  args.in = in.View();
  args.rows = in.rows;
  args.out = out.data();
  args.out_stride = kPanel;
  args.add = add;
  kernel(args);
  return out;
}

void FillNibbles(std::mt19937_64& random, PanelNibbles& nibbles) {
  for (auto& group : nibbles) {
    for (auto& lane : group) {
      for (uint8_t& byte : lane) byte = static_cast<uint8_t>(random());
    }
  }
}

TEST_P(TierTest, LinearQ4_0OnRandomPanelsOfAnyHeight) {
  for (uint32_t round = 0; round < 60; ++round) {
    Quantized<int8_t> in(static_cast<uint32_t>(1 + round % 37),
                         static_cast<uint32_t>(1 + Below(48)));
    const auto x = RandomFloats(random_, in.q.size());
    scalar_.quantize_int8(in.Target(x));
    std::vector<PanelQ4_0> panel(in.blocks + 16);
    for (PanelQ4_0& block : panel) {
      FillNibbles(random_, block.nibbles);
      for (uint16_t& d : block.scale)
        d = FloatToHalf(0.01f * static_cast<float>(Below(100)) - 0.5f);
    }
    const bool add = round % 2 == 0;
    EXPECT_TRUE(SameBytes(RunPanel(scalar_.linear_q4_0, panel.data(), in, add),
                          RunPanel(tier_.linear_q4_0, panel.data(), in, add)))
        << "rows " << in.rows << " blocks " << in.blocks;
  }
}

// The extremes that 16-bit accumulators must hold: all nibbles 15 or 0, all activations +-127.
TEST_P(TierTest, LinearQ4_0DoesNotSaturate) {
  for (int nibble : {15, 0}) {
    for (int activation : {127, -127}) {
      Quantized<int8_t> in(5, 3);
      in.Fill(static_cast<int8_t>(activation));
      std::vector<PanelQ4_0> panel(20);
      for (PanelQ4_0& block : panel) {
        std::memset(block.nibbles, nibble * 0x11, sizeof block.nibbles);
        for (uint16_t& d : block.scale) d = FloatToHalf(1);
      }
      const auto expected = static_cast<float>(3 * 32 * (nibble - 8) * activation);
      for (const Tier* tier : {&scalar_, &tier_}) {
        for (float value : RunPanel(tier->linear_q4_0, panel.data(), in)) {
          EXPECT_EQ(value, expected);
        }
      }
    }
  }
}

TEST_P(TierTest, LinearQ4_1OnRandomPanelsOfAnyHeight) {
  for (uint32_t round = 0; round < 60; ++round) {
    Quantized<int8_t> in(static_cast<uint32_t>(1 + round % 37),
                         static_cast<uint32_t>(1 + Below(48)));
    const auto x = RandomFloats(random_, in.q.size());
    scalar_.quantize_int8(in.Target(x));
    std::vector<PanelQ4_1> panel(in.blocks + 16);
    for (PanelQ4_1& block : panel) {
      FillNibbles(random_, block.nibbles);
      for (uint16_t& d : block.scale) d = FloatToHalf(0.01f * static_cast<float>(Below(100)));
      for (uint16_t& m : block.min) m = FloatToHalf(-0.1f * static_cast<float>(Below(100)));
    }
    const bool add = round % 2 == 0;
    EXPECT_TRUE(SameBytes(RunPanel(scalar_.linear_q4_1, panel.data(), in, add),
                          RunPanel(tier_.linear_q4_1, panel.data(), in, add)))
        << "rows " << in.rows << " blocks " << in.blocks;
  }
}

// The largest sums that 16-bit accumulators must hold: all weights 15, all activations +-127.
TEST_P(TierTest, LinearQ4_1DoesNotSaturate) {
  for (int sign : {1, -1}) {
    Quantized<int8_t> in(5, 3);
    in.Fill(static_cast<int8_t>(127 * sign));
    std::vector<PanelQ4_1> panel(20);
    std::memset(panel.data(), 0xff, panel.size() * sizeof panel[0]);
    for (PanelQ4_1& block : panel) {
      for (uint16_t& d : block.scale) d = FloatToHalf(1);
      for (uint16_t& m : block.min) m = 0;
    }
    const auto expected = static_cast<float>(sign * 3 * 32 * 15 * 127);
    for (const Tier* tier : {&scalar_, &tier_}) {
      for (float value : RunPanel(tier->linear_q4_1, panel.data(), in)) EXPECT_EQ(value, expected);
    }
  }
}

TEST_P(TierTest, LinearQ8_0OnRandomPanelsOfAnyHeight) {
  for (uint32_t round = 0; round < 60; ++round) {
    Quantized<int16_t> in(static_cast<uint32_t>(1 + round % 37),
                          static_cast<uint32_t>(1 + Below(48)));
    const auto x = RandomFloats(random_, in.q.size());
    scalar_.quantize_int16(in.Target(x));
    std::vector<PanelQ8_0> panel(in.blocks + 16);
    for (PanelQ8_0& block : panel) {
      for (auto& pair : block.values) {
        for (auto& lane : pair) {
          for (int8_t& value : lane) value = static_cast<int8_t>(random_());
        }
      }
      for (uint16_t& d : block.scale) d = FloatToHalf(0.01f * static_cast<float>(Below(100)));
    }
    const bool add = round % 2 == 0;
    EXPECT_TRUE(SameBytes(RunPanel(scalar_.linear_q8_0, panel.data(), in, add),
                          RunPanel(tier_.linear_q8_0, panel.data(), in, add)));
  }
}

TEST_P(TierTest, LinearQ8_0DoesNotOverflow) {
  Quantized<int16_t> in(3, 2);
  in.Fill(int16_t{-32767});
  std::vector<PanelQ8_0> panel(20);
  std::memset(panel.data(), 0x80, panel.size() * sizeof panel[0]);
  for (PanelQ8_0& block : panel) {
    for (uint16_t& d : block.scale) d = FloatToHalf(1);
  }
  for (const Tier* tier : {&scalar_, &tier_}) {
    for (float value : RunPanel(tier->linear_q8_0, panel.data(), in)) {
      EXPECT_EQ(value, 2.0f * 32 * 128 * 32767);
    }
  }
}

// One row times a pair of panels has the bits of two panels.
template <typename B>
void CompareDensePair(void (*dense)(const DensePanel<B>&), void (*pair)(const DensePanel<B>&),
                      std::mt19937_64& random, const std::vector<B>& weights) {
  for (uint32_t k : {1u, 2u, 17u, 150u}) {
    const auto a = RandomFloats(random, k);
    std::vector<float> expected(2 * kPanel, 0.7f);
    std::vector<float> actual = expected;
    const B* run = weights.data();
    DensePanel<B> args;
    args.a = a.data();
    args.runs = &run;
    args.run = args.k = k;
    args.b_stride = kPanel;
    args.rows = 1;
    args.store = k % 2 == 0 ? DenseStore::kAdd : DenseStore::kReplace;
    args.out = actual.data();
    pair(args);
    args.out = expected.data();
    dense(args);
    run += size_t{k} * kPanel;
    args.out += kPanel;
    dense(args);
    EXPECT_TRUE(SameBytes(expected, actual)) << "k " << k;
  }
}

TEST_P(TierTest, APairOfDensePanelsIsTwoPanels) {
  const auto floats = RandomFloats(random_, 2 * 150 * kPanel);
  std::vector<uint16_t> halves;
  std::vector<BFloat16> bfloats;
  for (float value : floats) {
    halves.push_back(FloatToHalf(value));
    bfloats.push_back(static_cast<BFloat16>(std::bit_cast<uint32_t>(value) >> 16));
  }
  CompareDensePair(scalar_.dense_half, tier_.pair_half, random_, halves);
  CompareDensePair(scalar_.dense_bfloat16, tier_.pair_bfloat16, random_, bfloats);
  CompareDensePair(scalar_.dense_float, tier_.pair_float, random_, floats);
}

template <typename B>
void CompareDense(void (*scalar)(const DensePanel<B>&), void (*other)(const DensePanel<B>&),
                  std::mt19937_64& random, const std::vector<B>& pool) {
  for (uint32_t round = 0; round < 200; ++round) {
    DensePanel<B> args;
    args.rows = static_cast<uint32_t>(1 + random() % (round % 4 < 2 ? 6 : 27));
    args.run = args.k = static_cast<uint32_t>(1 + random() % 150);
    args.b_stride = kPanel;
    if (round % 3 > 0) {  // no packed weight
      args.run = static_cast<uint32_t>(1 + random() % 40);
      args.b_stride += random() % 20;
      args.cols = static_cast<uint32_t>(1 + random() % (8 * kPanel));
      args.panel_runs = (args.k + args.run - 1) / args.run + random() % 3;
    }
    args.a_stride = args.k + random() % 3;
    args.out_stride = args.cols + random() % 3;
    args.store = static_cast<DenseStore>(random() % 3);
    std::vector<const B*> runs;
    for (size_t i = 0; i <= args.cols / kPanel * args.panel_runs + args.k / args.run; ++i) {
      runs.push_back(&pool[random() % (pool.size() - args.run * args.b_stride - kPanel)]);
    }
    const auto a = RandomFloats(random, args.rows * args.a_stride);
    auto expected = RandomFloats(random, args.rows * args.out_stride);
    auto actual = expected;
    args.a = a.data();
    args.runs = runs.data();
    args.out = expected.data();
    scalar(args);
    args.out = actual.data();
    other(args);
    EXPECT_TRUE(SameBytes(expected, actual)) << "rows " << args.rows << " cols " << args.cols;
  }
}

TEST_P(TierTest, DensePanelsOfAnyShape) {
  const auto floats = RandomFloats(random_, 5000);
  std::vector<uint16_t> halves;
  std::vector<BFloat16> bfloats;
  for (float value : floats) {
    halves.push_back(FloatToHalf(value));
    bfloats.push_back(static_cast<BFloat16>(std::bit_cast<uint32_t>(value) >> 16));
  }
  std::vector<int8_t> bytes;
  for (size_t i = 0; i < floats.size(); ++i) bytes.push_back(static_cast<int8_t>(random_()));
  CompareDense(scalar_.dense_int8, tier_.dense_int8, random_, bytes);
  CompareDense(scalar_.dense_float, tier_.dense_float, random_, floats);
  CompareDense(scalar_.dense_half, tier_.dense_half, random_, halves);
  CompareDense(scalar_.dense_bfloat16, tier_.dense_bfloat16, random_, bfloats);
}

// A tier may leave it out.
template <typename B>
void CompareWiden(void (*scalar)(const WidenPanel<B>&), void (*other)(const WidenPanel<B>&),
                  const std::vector<B>& pool) {
  if (other == nullptr) return;
  for (const size_t stride : {size_t{16}, size_t{64}, size_t{256}}) {
    const auto rows = static_cast<uint32_t>((pool.size() - kPanel) / stride + 1);
    const B* from = &pool[pool.size() - (rows - 1) * stride - kPanel];  // ends with the pool
    std::vector<float> expected(size_t{rows} * kPanel + 1, 0.7f);
    auto actual = expected;
    scalar({from, stride, rows, expected.data()});
    other({from, stride, rows, actual.data()});
    EXPECT_TRUE(SameBytes(expected, actual)) << "stride " << stride;
  }
}

TEST_P(TierTest, WidensEveryHalfAndByte) {
  std::vector<uint16_t> halves;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7fff) <= 0x7c00) halves.push_back(static_cast<uint16_t>(bits));  // no NaN
  }
  while (halves.size() % kPanel > 0) halves.push_back(0);
  std::vector<int8_t> bytes;
  for (uint32_t i = 0; i < 64 * 256; ++i) bytes.push_back(static_cast<int8_t>(i % 256));
  CompareWiden(scalar_.widen_half, tier_.widen_half, halves);
  CompareWiden(scalar_.widen_int8, tier_.widen_int8, bytes);
}

template <typename Q>
void CompareQuantize(void (*scalar)(const QuantizeRows<Q>&), void (*other)(const QuantizeRows<Q>&),
                     const std::vector<float>& x, uint32_t rows) {
  const auto blocks = static_cast<uint32_t>(x.size() / rows / kBlock);
  Quantized<Q> expected(rows, blocks);
  Quantized<Q> actual(rows, blocks);
  scalar(expected.Target(x));
  other(actual.Target(x));
  EXPECT_TRUE(SameBytes(expected.q, actual.q));
  EXPECT_TRUE(SameBytes(expected.scale, actual.scale));
  EXPECT_TRUE(SameBytes(expected.scaled_sum, actual.scaled_sum));
  EXPECT_TRUE(SameBytes(expected.centre, actual.centre));
}

TEST_P(TierTest, QuantizationOfOrdinaryTinyHugeAndZeroRows) {
  for (float size : {1.0f, 1e-3f, 1e4f, 1e-27f, 1e-38f, 1e37f, 0.0f}) {
    const auto x = RandomFloats(random_, 7 * 10 * kBlock, size);
    CompareQuantize(scalar_.quantize_int8, tier_.quantize_int8, x, 7);
    CompareQuantize(scalar_.quantize_int16, tier_.quantize_int16, x, 7);
  }
}

TEST_P(TierTest, QuantizationOfTiesAndExtremes) {
  std::vector<float> x(kBlock);
  for (uint32_t i = 0; i < kBlock; ++i) x[i] = (static_cast<float>(i) - 15.5f);
  x[0] = 127;
  CompareQuantize(scalar_.quantize_int8, tier_.quantize_int8, x, 1);
  x[0] = -32767;
  CompareQuantize(scalar_.quantize_int16, tier_.quantize_int16, x, 1);
}

TEST_P(TierTest, ANonFiniteValueMakesItsBlocksScaleNaN) {
  for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    auto x = RandomFloats(random_, 3 * kBlock);
    x[kBlock + 5] = -bad;
    for (const Tier* tier : {&scalar_, &tier_}) {
      Quantized<int8_t> bytes(1, 3);
      tier->quantize_int8(bytes.Target(x));
      EXPECT_FALSE(std::isnan(bytes.scale[0]));
      EXPECT_TRUE(std::isnan(bytes.scale[1]) && std::isnan(bytes.scaled_sum[1]));
      Quantized<int16_t> shorts(1, 3);
      tier->quantize_int16(shorts.Target(x));
      EXPECT_FALSE(std::isnan(shorts.scale[2]));
      EXPECT_TRUE(std::isnan(shorts.scale[1]));
    }
  }
}

TEST_P(TierTest, NormsAndRotationsOfAnyLength) {
  const auto compare = [&](uint32_t n, const auto& run) {
    auto expected = RandomFloats(random_, n + kPanel);  // the row, and what stays as it is
    auto actual = expected;
    run(scalar_, expected.data());
    run(tier_, actual.data());
    EXPECT_TRUE(SameBytes(expected, actual)) << n;
  };
  for (uint32_t n = 1; n <= 70; ++n) {
    const auto a = RandomFloats(random_, n, n % 3 == 0 ? 1e25f : 1.0f);
    const auto b = RandomFloats(random_, n);
    compare(n, [&](const Tier& t, float* x) { t.rms_norm(a.data(), b.data(), n, 1e-5f, x); });
    compare(2 * n, [&](const Tier& t, float* x) { t.rotate_halves(a.data(), b.data(), n, x); });
    compare(2 * n, [&](const Tier& t, float* x) { t.rotate_neighbours(a.data(), b.data(), n, x); });
  }
}

TEST_P(TierTest, SwiGluOverTheWholeRange) {
  std::vector<float> gate;
  for (float x = -120; x < 120; x += 0.037f) gate.push_back(x);
  gate.insert(gate.end(), {0.0f, -0.0f, 1e-30f, 3e38f, -3e38f});
  const auto up = RandomFloats(random_, gate.size());
  std::vector<float> expected(gate.size());
  std::vector<float> actual(gate.size());
  scalar_.swiglu(gate.data(), up.data(), gate.size(), expected.data());
  tier_.swiglu(gate.data(), up.data(), gate.size(), actual.data());
  EXPECT_TRUE(SameBytes(expected, actual));
  for (size_t i = 0; i < gate.size(); ++i) {
    const double exact = gate[i] / (1 + std::exp(-static_cast<double>(gate[i]))) * up[i];
    EXPECT_NEAR(actual[i], exact, std::abs(exact) * 1e-6 + 1e-35) << gate[i];
  }
}

TEST_P(TierTest, HalvesOfEveryMagnitude) {
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 0x7f800000; bits += 4099) {
    float value;
    std::memcpy(&value, &bits, 4);
    x.push_back(value);
    x.push_back(-value);
  }
  x.push_back(std::numeric_limits<float>::infinity());
  std::vector<uint16_t> expected(x.size());
  std::vector<uint16_t> actual(x.size());
  scalar_.to_half(x.data(), x.size(), expected.data());
  tier_.to_half(x.data(), x.size(), actual.data());
  EXPECT_TRUE(SameBytes(expected, actual));
}

TEST_P(TierTest, SoftmaxOfEveryLength) {
  for (uint32_t n = 1; n <= kSegment; ++n) {
    auto expected = RandomFloats(random_, kSegment, 30);
    // What lies beyond n is never looked at.
    std::fill(expected.begin() + n, expected.end(), std::nanf(""));
    auto actual = expected;
    const auto scores = expected;
    const SoftmaxState a = scalar_.softmax(expected.data(), n, 0.125f);
    const SoftmaxState b = tier_.softmax(actual.data(), n, 0.125f);
    EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0) << n;
    EXPECT_EQ(std::memcmp(expected.data(), actual.data(), n * sizeof(float)), 0) << n;
    double sum = 0;
    for (uint32_t i = 0; i < n; ++i) sum += std::exp(scores[i] * 0.125 - a.max);
    EXPECT_NEAR(a.sum, sum, sum * 1e-6);
  }
}

TEST_P(TierTest, MergesOfAnyWidth) {
  for (uint32_t n : {1u, 7u, 8u, 16u, 20u, 64u, 129u}) {
    for (float gap : {0.0f, 3.0f, -3.0f, 50.0f, 100.0f, -100.0f}) {
      auto expected = RandomFloats(random_, n);
      const auto next = RandomFloats(random_, n);
      auto actual = expected;
      SoftmaxState a{1.5f, 17.0f};
      SoftmaxState b = a;
      scalar_.merge(&a, expected.data(), {1.5f + gap, 3.0f}, next.data(), n);
      tier_.merge(&b, actual.data(), {1.5f + gap, 3.0f}, next.data(), n);
      EXPECT_TRUE(SameBytes(expected, actual));
      EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0);
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
