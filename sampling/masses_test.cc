#include "sampling/masses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "sampling/exponential.h"

namespace baton::sampling {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

std::vector<float> Logits(std::mt19937_64& random, size_t size, float max) {
  std::vector<float> logits(size);
  for (float& logit : logits) {
    const auto x = static_cast<float>(random() >> 40) * 0x1p-24f;
    logit = max - 40 * x * x;
    if (random() % 16 == 0) logit = kNever;
    if (random() % 16 == 0) logit = max;
  }
  return logits;
}

// The definition, one token at a time.
double MassOf(double x) {
  if (!(x < 32 * 0.6931471805599453)) return 0;
  return static_cast<double>(static_cast<uint64_t>(ExpOfMinus(x) * 0x1p32));
}

TEST(MassesTest, EveryVersionGivesTheBitsOfTheDefinition) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    const float max = static_cast<float>(static_cast<int>(random() % 41) - 20) * 0.7f;
    const auto logits = Logits(random, 1 + random() % 700, max);
    const double temperature = 0.05 + static_cast<double>(random() % 100) * 0.03;
    for (const MassVersion& version : MassVersions()) {
      if (!version.usable) continue;
      std::vector<double> masses(logits.size()), exponentials(logits.size());
      version.float_masses(logits, max, temperature, masses);
      version.float_exponentials(logits, max, exponentials);
      for (size_t i = 0; i < logits.size(); ++i) {
        const double x = static_cast<double>(max) - static_cast<double>(logits[i]);
        ASSERT_EQ(masses[i], MassOf(x / temperature)) << version.name << ", x " << x;
        ASSERT_EQ(exponentials[i], x < 64 ? ExpOfMinus(x) : 0) << version.name << ", x " << x;
      }
    }
  }
}

TEST(MassesTest, EveryVersionFindsTheLargestOfEveryChunk) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    auto logits = Logits(random, 1 + random() % 700, 5);
    const size_t chunks = (logits.size() + kChunk - 1) / kChunk;
    const size_t bad = round % 2 == 0 ? random() % logits.size() : logits.size();
    if (bad < logits.size()) logits[bad] = std::nanf("");
    for (const MassVersion& version : MassVersions()) {
      if (!version.usable) continue;
      std::vector<float> maxima(chunks);
      version.float_maxima(logits, maxima);
      for (size_t chunk = 0; chunk < chunks; ++chunk) {
        const auto begin = logits.begin() + static_cast<ptrdiff_t>(chunk * kChunk);
        const auto end = std::min(begin + kChunk, logits.end());
        const bool has_nan = bad / kChunk == chunk && bad < logits.size();
        ASSERT_EQ(maxima[chunk], has_nan ? -kNever : *std::max_element(begin, end)) << version.name;
      }
    }
  }
}

TEST(MassesTest, AreWholeNumbersUpToTwoToThe32) {
  const std::vector<float> logits = {3, 2.5f, kNever, -19.2f, -19.1f, -500};
  std::vector<double> masses(logits.size());
  MassesOf(logits, 3, 1, masses);
  EXPECT_EQ(masses[0], 0x1p32);
  EXPECT_EQ(masses[1], std::trunc(std::exp(-0.5) * 0x1p32));
  EXPECT_EQ(masses[2], 0);
  EXPECT_EQ(masses[3], 0);
  EXPECT_EQ(masses[4], 1);
  EXPECT_EQ(masses[5], 0);
}

TEST(MassesTest, AFloatRowIsThatOfItsDoubles) {
  std::mt19937_64 random(2);
  const auto logits = Logits(random, 1000, 1);
  const std::vector<double> wide(logits.begin(), logits.end());
  std::vector<double> a(logits.size()), b(logits.size());
  MassesOf(logits, 1, 0.7, a);
  MassesOf(wide, 1, 0.7, b);
  EXPECT_EQ(a, b);
  ExponentialsOf(logits, 1, a);
  ExponentialsOf(wide, 1, b);
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace baton::sampling
