// Weights times activation rows, cut into units of 32 outputs that threads claim.
#ifndef BATON_KERNELS_CPU_LINEAR_H_
#define BATON_KERNELS_CPU_LINEAR_H_

#include <cstdint>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tier.h"
#include "kernels/cpu/weight.h"

namespace baton::kernels::cpu {

// Rows of which all outputs are claimed before those of the next ones.
inline constexpr uint32_t kBandRows = 2 * kTileRows;

struct Rows {
  uint32_t first = 0;  // a multiple of kTileRows
  uint32_t count = 0;  // at most kTileRows
  uint32_t tile() const { return first / kTileRows; }
};

// What follows a linear in the same pass of the threads.
class LinearEpilogue {
 public:
  virtual ~LinearEpilogue() = default;
  // These rows of outputs [begin, end) are done. Every output of every tile of rows is reported
  // once, by the thread that made it; several threads report at the same time.
  virtual void Finished(Rows rows, uint32_t begin, uint32_t end) = 0;
};

// Holds floats and has its rows set.
struct LinearOutput {
  CpuActivation& values;
  bool add = false;                    // values += w * in
  LinearEpilogue* epilogue = nullptr;  // may be null
};

void RunLinear(const Tier& tier, ThreadPool& pool, const CpuWeight& w, const CpuActivation& in,
               const LinearOutput& out);

// out = silu(gate * in) * (up * in) in the forms set on `out`.
void RunGatedLinear(const Tier& tier, ThreadPool& pool, const CpuWeight& w, const CpuActivation& in,
                    CpuActivation& out);

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_LINEAR_H_
