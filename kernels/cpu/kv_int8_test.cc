#include "kernels/cpu/kv_int8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace baton::kernels::cpu {
namespace {

TEST(KvInt8Test, TheLargestNumberBecomes127AndTiesGoToEven) {
  const std::vector<float> x = {0.5f, 1.5f, -2.5f, 63.5f, -127, 126.4f, 0};
  std::vector<int8_t> q(x.size());
  EXPECT_EQ(QuantizeVector(x.data(), 7, q.data()), 1.0f);
  EXPECT_EQ(q, (std::vector<int8_t>{0, 2, -2, 64, -127, 126, 0}));
}

TEST(KvInt8Test, TinyVectorsAreZero) {
  for (const float tiny : {0.0f, 1e-30f}) {
    const std::vector<float> x(24, tiny);
    std::vector<int8_t> q(x.size(), 9);
    EXPECT_EQ(QuantizeVector(x.data(), 24, q.data()), 0.0f);
    EXPECT_EQ(q, std::vector<int8_t>(24, 0));
  }
}

TEST(KvInt8Test, ANumberThatIsNotFiniteMakesTheScaleNaN) {
  for (const float bad : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
    const std::vector<float> x = {1, bad, 2};
    std::vector<int8_t> q(x.size(), 9);
    EXPECT_TRUE(std::isnan(QuantizeVector(x.data(), 3, q.data())));
    EXPECT_EQ(q, std::vector<int8_t>(3, 0));
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
