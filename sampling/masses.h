// What sampling does with every token of the vocabulary, and what therefore has a version per
// vector width. docs/numerics.md, "Sampling", is the definition; every version gives its exact
// bits.
#ifndef BATON_SAMPLING_MASSES_H_
#define BATON_SAMPLING_MASSES_H_

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace baton::sampling {

// masses[i] = trunc(exp(-(max - logits[i]) / temperature) * 2^32), an integer in [0, 2^32]; 0 for a
// logit of -inf. As doubles, because sums of less than 2^20 of them are exact in any order.
// No logit is NaN or above `max`, which is finite; temperature > 0; the spans have equal sizes.
void MassesOf(std::span<const float> logits, double max, double temperature,
              std::span<double> masses);
void MassesOf(std::span<const double> logits, double max, double temperature,
              std::span<double> masses);

// out[i] = ExpOfMinus(max - logits[i]); 0 where the difference is 64 or more.
void ExponentialsOf(std::span<const float> logits, double max, std::span<double> out);
void ExponentialsOf(std::span<const double> logits, double max, std::span<double> out);

// maxima[i] = the largest logit of chunk i, which is logits [i * kChunk, (i + 1) * kChunk);
// infinity when one of them is NaN. `maxima` has a place for every chunk, the last of which may be
// short.
inline constexpr size_t kChunk = 128;
void MaximaOf(std::span<const float> logits, std::span<float> maxima);
void MaximaOf(std::span<const double> logits, std::span<double> maxima);

// A version of these, for tests. `usable`: this processor runs it.
struct MassVersion {
  std::string_view name;
  bool usable;
  void (*float_masses)(std::span<const float>, double max, double temperature, std::span<double>);
  void (*float_exponentials)(std::span<const float>, double max, std::span<double>);
  void (*float_maxima)(std::span<const float>, std::span<float>);
};
std::vector<MassVersion> MassVersions();

}  // namespace baton::sampling

#endif  // BATON_SAMPLING_MASSES_H_
