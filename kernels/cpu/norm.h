// RMSNorm of rows, alone and as the end of the linear that makes them.
#ifndef BATON_KERNELS_CPU_NORM_H_
#define BATON_KERNELS_CPU_NORM_H_

#include <cstdint>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/countdown.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

// Norms rows of x into `out`, in the forms that are set there.
struct RowNorm {
  const Tier& tier;
  const float* gain;
  float eps;
  const CpuActivation& x;
  CpuActivation& out;

  void Run(uint32_t begin, uint32_t end) const;
  // When the rows of the tiles from row `first` on have run, all of them; by one thread.
  void Finish(uint32_t first) const { out.GatherResiduals(first, x.rows()); }
};

// Norms rows when their last output is there: a tile by the thread that made it, the last band by
// all that wait for the end of the pass.
class NormEpilogue final : public LinearEpilogue {
 public:
  // `pool` runs the linear. `counts` is memory that several calls use one after the other.
  NormEpilogue(const RowNorm& norm, ThreadPool& pool, Countdowns& counts);
  void Finished(Rows rows, uint32_t begin, uint32_t end) override;
  // After the pass.
  void Finish() const { last_band_.norm.Finish(last_band_.first); }

 private:
  // From row `first` on, in pieces.
  struct Pieces {
    const RowNorm& norm;
    uint32_t first;
    void operator()(uint32_t piece) const;
  };

  const Pieces last_band_;
  ThreadPool& pool_;
  Countdowns& counts_;  // of outputs: of each tile, then of the last band
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_NORM_H_
