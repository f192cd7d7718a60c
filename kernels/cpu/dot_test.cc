// The dot products of the VNNI tiers against the model of the instructions (dot/model.cc).
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/avxvnni/avxvnni.h"
#include "kernels/cpu/dot/stand_ins.h"
#include "kernels/cpu/tiers.h"

namespace baton::kernels::cpu {
namespace {

using Lanes = std::array<int32_t, 8>;
using BytesDot = void (*)(const uint8_t*, const int8_t*, int32_t*);
using ShortsDot = void (*)(const int16_t*, const int16_t*, int32_t*);

struct Subject {
  const char* name;
  const char* runs_with;  // a tier that needs as much of the processor
  BytesDot bytes;
  ShortsDot shorts;
};

class DotTest : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    const TierEntry& entry = *FindTier(GetParam().runs_with);
    if (!entry.runs) GTEST_SKIP() << "this processor lacks " << entry.needs;
  }

  // Small and large numbers, with both ends of the range often among them.
  template <typename T>
  T Any() {
    using Limits = std::numeric_limits<T>;
    const T ends[] = {Limits::min(), Limits::max(), 0, 1};
    return random_() % 3 == 0 ? ends[random_() % 4] : static_cast<T>(random_());
  }
  template <typename T, size_t kCount>
  std::array<T, kCount> AnyOf() {
    std::array<T, kCount> values;
    for (T& value : values) value = Any<T>();
    return values;
  }

  std::mt19937_64 random_{7};
};

INSTANTIATE_TEST_SUITE_P(Encodings, DotTest,
                         testing::Values(Subject{"vex", "avxvnni", AvxVnniDotBytes,
                                                 AvxVnniDotShorts},
                                         Subject{"evex", "avx512", EvexDotBytes, EvexDotShorts}),
                         [](const auto& subject) { return std::string(subject.param.name); });

TEST_P(DotTest, BytesAreAsTheModelSays) {
  for (int round = 0; round < 20000; ++round) {
    const auto a = AnyOf<uint8_t, 32>();
    const auto b = AnyOf<int8_t, 32>();
    auto expected = AnyOf<int32_t, 8>();
    Lanes actual = expected;
    ModelDotBytes(a.data(), b.data(), expected.data());
    GetParam().bytes(a.data(), b.data(), actual.data());
    ASSERT_EQ(actual, expected);
  }
}

TEST_P(DotTest, PairsOfInt16AreAsTheModelSays) {
  for (int round = 0; round < 20000; ++round) {
    const auto a = AnyOf<int16_t, 16>();
    const auto b = AnyOf<int16_t, 16>();
    auto expected = AnyOf<int32_t, 8>();
    Lanes actual = expected;
    ModelDotShorts(a.data(), b.data(), expected.data());
    GetParam().shorts(a.data(), b.data(), actual.data());
    ASSERT_EQ(actual, expected);
  }
}

// The model itself, by numbers worked out by hand.
TEST(DotModelTest, AddsProductsToEachLaneAndWraps) {
  if (!FindTier("avx2")->runs) GTEST_SKIP() << "the model is compiled for AVX2";
  std::array<uint8_t, 32> a{};
  std::array<int8_t, 32> b{};
  a[4] = 255, a[5] = 255, a[6] = 255, a[7] = 255;
  b[4] = -128, b[5] = -128, b[6] = -128, b[7] = -128;
  a[31] = 1, b[31] = 1;
  Lanes sum = {5, 100, 0, 0, 0, 0, 0, std::numeric_limits<int32_t>::max()};
  ModelDotBytes(a.data(), b.data(), sum.data());
  EXPECT_EQ(sum,
            (Lanes{5, 100 - 4 * 255 * 128, 0, 0, 0, 0, 0, std::numeric_limits<int32_t>::min()}));
  std::array<int16_t, 16> c{};
  std::array<int16_t, 16> d{};
  c[2] = -32768, c[3] = 3, d[2] = 32767, d[3] = -7;
  sum = {};
  ModelDotShorts(c.data(), d.data(), sum.data());
  EXPECT_EQ(sum, (Lanes{0, -32768 * 32767 - 21}));
}

}  // namespace
}  // namespace baton::kernels::cpu
