// RMSNorm of rows, alone and as the end of the linear that makes them.
#ifndef BATON_KERNELS_CPU_NORM_H_
#define BATON_KERNELS_CPU_NORM_H_

#include <cstdint>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/countdown.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

// out[i] = x[i] / sqrt(mean of squares + eps) * gain[i]. The same code serves every tier.
void RmsNorm(const float* x, const float* gain, uint32_t n, float eps, float* out);

// Norms rows of x into `out`, in the forms that are set there.
struct RowNorm {
  const Tier& tier;
  const float* gain;
  float eps;
  const CpuActivation& x;
  CpuActivation& out;

  void Run(uint32_t begin, uint32_t end) const;
};

// Norms a tile of rows when its last output is there.
class NormEpilogue final : public LinearEpilogue {
 public:
  // `tiles` is memory that several calls use one after the other.
  NormEpilogue(const RowNorm& norm, Countdowns& tiles);
  void Finished(Rows rows, uint32_t begin, uint32_t end) override;

 private:
  const RowNorm& norm_;
  Countdowns& tiles_;
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_NORM_H_
