// The `cpu` backend: numerics v3 on packed weights and f16 or int8 blocks (docs/numerics.md).
#ifndef BATON_KERNELS_CPU_CPU_BACKEND_H_
#define BATON_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace baton::kernels::cpu {

enum class KvType {
  kF16,
  kInt8,  // half the bytes; another arithmetic
};

struct CpuOptions {
  uint32_t threads = 0;  // 0: one per processor this process may use
  // The name of an instruction tier (tiers.h); empty: the best that the processor runs. The bits
  // are the same.
  std::string tier;
  KvType kv_type = KvType::kF16;
};

// INVALID_ARGUMENT: this build has no tier of that name. UNAVAILABLE: the processor lacks it.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuOptions& options);

// How often the threads of a `cpu` backend have waited for one another: once for each piece of work
// that was shared among them.
uint64_t Synchronisations(const Backend& backend);

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_CPU_BACKEND_H_
