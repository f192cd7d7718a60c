// Rotary position embedding. Tables are made with our own sine, cosine and exponential in double
// precision, so their bits do not depend on a math library.
#ifndef BATON_KERNELS_CPU_ROPE_H_
#define BATON_KERNELS_CPU_ROPE_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

class CpuRope final : public RopeTable {
 public:
  explicit CpuRope(const RopeSpec& spec);

  uint32_t context() const { return context_; }
  // Rotates one head in place.
  void Rotate(const Tier& tier, uint32_t position, float* head) const;

 private:
  const RopeSpec::Pairing pairing_;
  const uint32_t pairs_;
  const uint32_t context_;
  std::vector<float> cos_sin_;  // [position][cos of every pair, sin of every pair]
};

// Exposed for tests: within 1e-15 of the true value for the arguments that occur.
double ExactExp(double x);
struct SinCos {
  double sin;
  double cos;
};
SinCos ExactSinCos(double angle);

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_ROPE_H_
