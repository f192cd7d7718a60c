// Weights times activation rows, cut into units of 32 outputs that threads claim.
#ifndef BATON_KERNELS_CPU_LINEAR_H_
#define BATON_KERNELS_CPU_LINEAR_H_

#include "kernels/cpu/activation.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tier.h"
#include "kernels/cpu/weight.h"

namespace baton::kernels::cpu {

enum class LinearStore { kReplace, kAdd };

// out = w * in, or out += w * in. `out` holds floats and has its rows set.
void RunLinear(const Tier& tier, ThreadPool& pool, const CpuWeight& w, const CpuActivation& in,
               LinearStore store, CpuActivation& out);

// out = silu(gate * in) * (up * in) in the forms set on `out`.
void RunGatedLinear(const Tier& tier, ThreadPool& pool, const CpuWeight& w, const CpuActivation& in,
                    CpuActivation& out);

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_LINEAR_H_
