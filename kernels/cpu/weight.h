// Weights of the cpu backend, packed into panels (packed.h).
#ifndef BATON_KERNELS_CPU_WEIGHT_H_
#define BATON_KERNELS_CPU_WEIGHT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/huge_memory.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

// One tensor of a weight.
struct WeightPart {
  TensorType type = TensorType::kF32;
  Forms residual = 0;  // 4-bit weights: the residual that the input comes with
  uint32_t rows = 0;
  uint32_t first_output = 0;
  uint32_t panels = 0;
  size_t panel_bytes = 0;
  const std::byte* panel_data = nullptr;

  const std::byte* panel(uint32_t index) const { return panel_data + index * panel_bytes; }
  // Outputs of panel `index`: 16, fewer in the last.
  uint32_t width(uint32_t index) const { return std::min(kPanel, rows - index * kPanel); }
};

class CpuWeight final : public PackedWeight {
 public:
  // Shapes and byte counts are checked here; the panels lie in `memory`.
  static absl::StatusOr<std::unique_ptr<CpuWeight>> Pack(std::span<const RawTensor> tensors,
                                                         PartOrder order, HugeMemory& memory,
                                                         ThreadPool& pool);

  const std::vector<WeightPart>& parts() const { return parts_; }
  bool gate_up() const { return gate_up_; }
  // The forms in which its input must come.
  Forms input_forms() const;

  // The values of one output's row: out has inputs() places. Exactly what the file says.
  void ReadRow(uint32_t output, float* out) const;

 private:
  CpuWeight(uint32_t outputs, uint32_t inputs, bool gate_up)
      : PackedWeight(outputs, inputs), gate_up_(gate_up) {}

  std::vector<WeightPart> parts_;
  const bool gate_up_;
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_WEIGHT_H_
