// The `cpu` backend: numerics v1 on packed weights and f16 blocks (docs/numerics.md).
#ifndef BATON_KERNELS_CPU_CPU_BACKEND_H_
#define BATON_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace baton::kernels::cpu {

enum class TierChoice {
  kBest,    // what the processor has
  kScalar,  // for tests
  kAvx2,    // UNAVAILABLE where the processor lacks it
};

struct CpuOptions {
  uint32_t threads = 0;  // 0: one per processor this process may use
  TierChoice tier = TierChoice::kBest;
};

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuOptions& options);

// How often the threads of a `cpu` backend have waited for one another: once for each piece of work
// that was shared among them.
uint64_t Synchronisations(const Backend& backend);

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_CPU_BACKEND_H_
