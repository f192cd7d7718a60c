// How long steps of this worker last, learned from those it ran: a straight line in what a step
// computes, fitted by least squares of the relative error over the last steps.
#ifndef BATON_ENGINE_STEP_TIME_MODEL_H_
#define BATON_ENGINE_STEP_TIME_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/step_times.h"

namespace baton::engine {

// Deterministic: no clock, what it says follows from what was recorded. Owner: the engine.
//
// - No coefficient is negative, so that a prediction never falls when work is added, and none is
//   ever infinite or NaN, whatever is recorded.
// - A step that took much longer than others of its kind differ (the machine gave the processor to
//   somebody else) pulls no more than one at the edge of what is usual. When all do, what is usual
//   widens and the model follows within some dozens of steps.
// - Steps of prompts alone, of decodes alone and mixed ones fade by steps of their own kind: hours
//   of decodes do not wipe out what is known of prompts.
// - Where the steps do not tell coefficients apart (always eight decodes), those have the
//   proportion of kTypical: the first step measures the machine, the others the model.
class StepTimeModel {
 public:
  // Ignores a step without work and a time that is not positive, finite and below kLongest.
  void Record(const StepWork& work, double seconds);

  // A step has been recorded; before that all predictions are 0.
  bool measured() const { return token_ > 0; }
  // Steps of decodes alone have been recorded: what is said of them is no guess.
  bool decodes_measured() const { return kinds_[kDecodes].steps > 0; }
  // Steps with prompts in them that have been recorded: few, and what is said of prompts may be
  // what a cold machine took.
  uint64_t prompt_steps() const { return kinds_[kPrompts].steps + kinds_[kMixed].steps; }
  const StepTimes& times() const { return times_; }
  double Predict(const StepWork& work) const { return times_.Seconds(work); }

  // The most tokens of a prompt at `start` with which a step of them and `beside` is predicted to
  // last at most `seconds`, up to `most`; 0: not even one.
  uint32_t PromptTokensWithin(double seconds, const StepWork& beside, uint32_t start,
                              uint32_t most) const;

  static constexpr double kLongest = 3600;  // seconds
  // In units of a prompt token. On two cores and a model of 135M parameters the weights that are
  // read once cost as much as seven tokens, 2,000 keys of a prompt as one; the wider the model, the
  // more keys.
  static constexpr StepTimes kTypical = {7, 1, 1, 1.0 / 4096, 1.0 / 2048};

 private:
  static constexpr size_t kParts = 5;
  using Vector = std::array<double, kParts>;
  enum Kind : uint8_t { kPrompts, kDecodes, kMixed, kKinds };

  // Normal equations a x = b of the coefficients, in units of the predicted time.
  struct Equations {
    std::array<Vector, kParts> a{};
    Vector b{};
  };
  struct Fit {
    Equations sums;     // of steps of one kind, fading
    double spread = 0;  // usual |relative error|: the median
    uint64_t steps = 0;
  };

  static Kind KindOf(const StepWork& work);
  static Vector PartsOf(const StepWork& work);
  static Vector ToVector(const StepTimes& times);
  // How much a step with this relative error counts; learns from it what is usual.
  static double Weigh(Fit& fit, double error);
  void Learn(const StepWork& work, double seconds);
  Equations Together() const;
  void Solve();

  std::array<Fit, kKinds> kinds_;
  double token_ = 0;  // seconds of a typical prompt token on this machine, roughly
  StepTimes times_;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_STEP_TIME_MODEL_H_
