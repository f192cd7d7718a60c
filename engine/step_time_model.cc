#include "engine/step_time_model.h"

#include <algorithm>
#include <cmath>

namespace baton::engine {

namespace {

constexpr double kKept = 0.95;      // of a kind's sums at each further step of it: some 20 count
constexpr double kUsual = 2;        // spreads: errors up to here count in full
constexpr double kFirstSpread = 1;  // until steps of the kind have narrowed it
constexpr double kNarrower = 0.8;   // for an error within the spread, else it widens by as much
constexpr double kLeastSpread = 0.02;
constexpr double kNewest = 0.05;
// Steps: so much counts that a proportion is typical. A prompt of thousands of tokens is predicted
// well before the first one came, and few steps that show otherwise win.
constexpr double kPrior = 0.02;
constexpr double kLeastRate = 0.1;  // a coefficient of 0 can grow again
constexpr int kRounds = 60;

}  // namespace

StepTimeModel::Kind StepTimeModel::KindOf(const StepWork& work) {
  if (work.prompt_tokens == 0) return kDecodes;
  return work.decode_rows == 0 ? kPrompts : kMixed;
}

StepTimeModel::Vector StepTimeModel::ToVector(const StepTimes& times) {
  return {times.step, times.prompt_token, times.decode_row, times.prompt_key, times.decode_key};
}

StepTimeModel::Vector StepTimeModel::PartsOf(const StepWork& work) {
  return {1, static_cast<double>(work.prompt_tokens), static_cast<double>(work.decode_rows),
          static_cast<double>(work.prompt_keys), static_cast<double>(work.decode_keys)};
}

double StepTimeModel::Weigh(Fit& fit, double error) {
  if (fit.steps++ == 0) fit.spread = kFirstSpread;
  const double usual = kUsual * fit.spread;
  const double size = std::abs(error);
  fit.spread *= size < fit.spread ? kNarrower : 1 / kNarrower;
  fit.spread = std::max(fit.spread, kLeastSpread);
  return size <= usual ? 1 : usual / size;
}

void StepTimeModel::Record(const StepWork& work, double seconds) {
  if (!(seconds > 0) || seconds > kLongest) return;
  if (work.prompt_tokens + uint64_t{work.decode_rows} == 0) return;
  const double token = seconds / kTypical.Seconds(work);
  if (!measured()) {
    token_ = token;
    times_ = {kTypical.step * token, kTypical.prompt_token * token, kTypical.decode_row * token,
              kTypical.prompt_key * token, kTypical.decode_key * token};
  }
  token_ += kNewest * (std::min(token, 2 * token_) - token_);
  Learn(work, seconds);
  Solve();
}

void StepTimeModel::Learn(const StepWork& work, double seconds) {
  // Relative to what was predicted, not to what it took: else slow steps would count less than
  // fast ones and the line would lie below the middle.
  const double unit = std::max(Predict(work), seconds / 1000);
  Fit& fit = kinds_[KindOf(work)];
  const double weight = Weigh(fit, (seconds - unit) / unit);
  Vector parts = PartsOf(work);
  for (double& part : parts) part /= unit;
  for (size_t i = 0; i < kParts; ++i) {
    for (size_t j = 0; j < kParts; ++j) {
      fit.sums.a[i][j] = kKept * fit.sums.a[i][j] + weight * parts[i] * parts[j];
    }
    fit.sums.b[i] = kKept * fit.sums.b[i] + weight * parts[i] * (seconds / unit);
  }
}

// What all kinds say together, and a little that the proportions are the typical ones.
StepTimeModel::Equations StepTimeModel::Together() const {
  Equations all;
  for (const Fit& fit : kinds_) {
    for (size_t i = 0; i < kParts; ++i) {
      for (size_t j = 0; j < kParts; ++j) all.a[i][j] += fit.sums.a[i][j];
      all.b[i] += fit.sums.b[i];
    }
  }
  const Vector typical = ToVector(kTypical);
  constexpr size_t kPairs[][2] = {{0, 1}, {1, 2}, {1, 3}, {2, 4}};
  for (const auto& [i, j] : kPairs) {
    const double one = 1 / (typical[i] * token_);
    const double other = -1 / (typical[j] * token_);
    all.a[i][i] += kPrior * one * one;
    all.a[j][j] += kPrior * other * other;
    all.a[i][j] += kPrior * one * other;
    all.a[j][i] += kPrior * one * other;
  }
  return all;
}

// Walks down from where it was, each coefficient as fast as its share of the time. The rates add up
// to 1, so it never steps too far.
void StepTimeModel::Solve() {
  const Equations all = Together();
  Vector x = ToVector(times_);
  for (int round = 0; round < kRounds; ++round) {
    Vector rate{};
    double rates = 0;
    for (size_t i = 0; i < kParts; ++i) {
      rates += rate[i] = std::max(x[i] * std::sqrt(all.a[i][i]), kLeastRate);
    }
    Vector next = x;
    for (size_t i = 0; i < kParts; ++i) {
      double slope = all.b[i];
      for (size_t j = 0; j < kParts; ++j) slope -= all.a[i][j] * x[j];
      next[i] = std::max(0.0, x[i] + rate[i] / rates * slope / all.a[i][i]);
    }
    x = next;
  }
  times_ = {x[0], x[1], x[2], x[3], x[4]};
}

uint32_t StepTimeModel::PromptTokensWithin(double seconds, const StepWork& beside, uint32_t start,
                                           uint32_t most) const {
  const auto fits = [&](uint32_t tokens) {
    StepWork work = beside;
    work.AddPrompt(start, tokens);
    return Predict(work) <= seconds;
  };
  uint32_t fit = 0;
  for (uint32_t over = most + 1; over - fit > 1;) {
    const uint32_t middle = fit + (over - fit) / 2;
    (fits(middle) ? fit : over) = middle;
  }
  return fit;
}

}  // namespace baton::engine
