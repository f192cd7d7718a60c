#include "sampling/masses.h"

#include <cstddef>
#include <limits>

#include "sampling/exponential.h"

// The loops are plain C++ that the compiler turns into vectors; each version is the same text for
// another instruction set. Nothing in them may be contracted or reordered, so all give equal bits.
#define BATON_ALWAYS_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__)
#define BATON_AVX2 __attribute__((target("avx2")))
#define BATON_AVX512 __attribute__((target("avx512f,avx512dq,avx512vl")))
#endif

namespace baton::sampling {
namespace {

// exp(-x) * 2^32 is below 1 from x = 32 ln 2 on.
constexpr double kNoMass = 22.180709777918249;
// exp(-64) of a row of any length is lost in the rounding of a sum that is at least 1.
constexpr double kNothing = 64;

// Towards zero, for 0 <= x < 2^52, without an instruction that old processors lack.
BATON_ALWAYS_INLINE double Truncated(double x) {
  constexpr double kTwo52 = 0x1p52;
  const double rounded = (x + kTwo52) - kTwo52;
  return rounded > x ? rounded - 1 : rounded;
}

template <typename Logit>
BATON_ALWAYS_INLINE void Masses(const Logit* logits, size_t n, double max, double temperature,
                                double* masses) {
  for (size_t i = 0; i < n; ++i) {
    const double x = (max - static_cast<double>(logits[i])) / temperature;
    const double mass = Truncated(ExpOfMinus(x < kNoMass ? x : kNoMass) * 0x1p32);
    masses[i] = x < kNoMass ? mass : 0;
  }
}

template <typename Logit>
BATON_ALWAYS_INLINE void Exponentials(const Logit* logits, size_t n, double max, double* out) {
  for (size_t i = 0; i < n; ++i) {
    const double x = max - static_cast<double>(logits[i]);
    const double e = ExpOfMinus(x < kNothing ? x : kNothing);
    out[i] = x < kNothing ? e : 0;
  }
}

// Infinity when a logit is NaN. In lanes, which become vectors.
template <typename Logit>
BATON_ALWAYS_INLINE Logit Maximum(const Logit* logits, size_t n) {
  constexpr Logit kInfinity = std::numeric_limits<Logit>::infinity();
  constexpr size_t kLanes = 32;
  Logit lanes[kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = -kInfinity;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const Logit logit = logits[i + lane];
      const Logit seen = logit < kInfinity ? logit : kInfinity;
      lanes[lane] = lanes[lane] > seen ? lanes[lane] : seen;
    }
  }
  for (; i < n; ++i) {
    const Logit seen = logits[i] < kInfinity ? logits[i] : kInfinity;
    lanes[0] = lanes[0] > seen ? lanes[0] : seen;
  }
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) {
      lanes[lane] = lanes[lane] > lanes[lane + half] ? lanes[lane] : lanes[lane + half];
    }
  }
  return lanes[0];
}

template <typename Logit>
BATON_ALWAYS_INLINE void Maxima(const Logit* logits, size_t n, Logit* maxima) {
  for (size_t at = 0; at < n; at += kChunk) {
    maxima[at / kChunk] = Maximum(logits + at, n - at < kChunk ? n - at : kChunk);
  }
}

template <typename Logit>
void PlainMaxima(std::span<const Logit> logits, std::span<Logit> maxima) {
  Maxima(logits.data(), logits.size(), maxima.data());
}

template <typename Logit>
void PlainMasses(std::span<const Logit> logits, double max, double temperature,
                 std::span<double> masses) {
  Masses(logits.data(), logits.size(), max, temperature, masses.data());
}

template <typename Logit>
void PlainExponentials(std::span<const Logit> logits, double max, std::span<double> out) {
  Exponentials(logits.data(), logits.size(), max, out.data());
}

#if defined(__x86_64__)
template <typename Logit>
BATON_AVX2 void Avx2Maxima(std::span<const Logit> logits, std::span<Logit> maxima) {
  Maxima(logits.data(), logits.size(), maxima.data());
}

template <typename Logit>
BATON_AVX2 void Avx2Masses(std::span<const Logit> logits, double max, double temperature,
                           std::span<double> masses) {
  Masses(logits.data(), logits.size(), max, temperature, masses.data());
}

template <typename Logit>
BATON_AVX2 void Avx2Exponentials(std::span<const Logit> logits, double max, std::span<double> out) {
  Exponentials(logits.data(), logits.size(), max, out.data());
}

template <typename Logit>
BATON_AVX512 void Avx512Maxima(std::span<const Logit> logits, std::span<Logit> maxima) {
  Maxima(logits.data(), logits.size(), maxima.data());
}

template <typename Logit>
BATON_AVX512 void Avx512Masses(std::span<const Logit> logits, double max, double temperature,
                               std::span<double> masses) {
  Masses(logits.data(), logits.size(), max, temperature, masses.data());
}

template <typename Logit>
BATON_AVX512 void Avx512Exponentials(std::span<const Logit> logits, double max,
                                     std::span<double> out) {
  Exponentials(logits.data(), logits.size(), max, out.data());
}

bool HasAvx2() { return __builtin_cpu_supports("avx2") != 0; }
bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}
#endif

template <typename Logit>
struct Best {
  decltype(&PlainMasses<Logit>) masses = &PlainMasses<Logit>;
  decltype(&PlainExponentials<Logit>) exponentials = &PlainExponentials<Logit>;
  decltype(&PlainMaxima<Logit>) maxima = &PlainMaxima<Logit>;

  Best() {
#if defined(__x86_64__)
    if (HasAvx2()) {
      masses = &Avx2Masses<Logit>;
      exponentials = &Avx2Exponentials<Logit>;
      maxima = &Avx2Maxima<Logit>;
    }
    if (HasAvx512()) {
      masses = &Avx512Masses<Logit>;
      exponentials = &Avx512Exponentials<Logit>;
      maxima = &Avx512Maxima<Logit>;
    }
#endif
  }
};

template <typename Logit>
const Best<Logit>& BestVersion() {
  static const Best<Logit> best;
  return best;
}

}  // namespace

void MassesOf(std::span<const float> logits, double max, double temperature,
              std::span<double> masses) {
  BestVersion<float>().masses(logits, max, temperature, masses);
}
void MassesOf(std::span<const double> logits, double max, double temperature,
              std::span<double> masses) {
  BestVersion<double>().masses(logits, max, temperature, masses);
}

void ExponentialsOf(std::span<const float> logits, double max, std::span<double> out) {
  BestVersion<float>().exponentials(logits, max, out);
}
void ExponentialsOf(std::span<const double> logits, double max, std::span<double> out) {
  BestVersion<double>().exponentials(logits, max, out);
}

void MaximaOf(std::span<const float> logits, std::span<float> maxima) {
  BestVersion<float>().maxima(logits, maxima);
}
void MaximaOf(std::span<const double> logits, std::span<double> maxima) {
  BestVersion<double>().maxima(logits, maxima);
}

std::vector<MassVersion> MassVersions() {
  std::vector<MassVersion> versions = {
      {"plain", true, &PlainMasses<float>, &PlainExponentials<float>, &PlainMaxima<float>}};
#if defined(__x86_64__)
  versions.push_back(
      {"avx2", HasAvx2(), &Avx2Masses<float>, &Avx2Exponentials<float>, &Avx2Maxima<float>});
  versions.push_back({"avx512", HasAvx512(), &Avx512Masses<float>, &Avx512Exponentials<float>,
                      &Avx512Maxima<float>});
#endif
  return versions;
}

}  // namespace baton::sampling
