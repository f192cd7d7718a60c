#include "kernels/cpu/weight.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/checked.h"
#include "common/status_macros.h"
#include "kernels/cpu/packed.h"
#include "kernels/half.h"

namespace baton::kernels::cpu {
namespace {

constexpr uint64_t kMaxDimension = uint64_t{1} << 28;

std::string NameOf(const RawTensor& tensor) { return "tensor " + std::string(tensor.name); }

absl::Status Check(const RawTensor& tensor, uint64_t cols) {
  const auto info = InfoOf(tensor.type);
  if (!info.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        NameOf(tensor), ": type ", static_cast<uint32_t>(tensor.type), " is not supported"));
  }
  if (tensor.rows == 0 || tensor.cols == 0 || tensor.rows > kMaxDimension ||
      tensor.cols > kMaxDimension || tensor.cols != cols) {
    return absl::InvalidArgumentError(NameOf(tensor) + ": wrong dimensions");
  }
  if (tensor.cols % info->block_values != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(tensor), ": rows of ", tensor.cols, " are no whole blocks"));
  }
  const auto row_bytes = tensor.cols / info->block_values * info->block_bytes;
  if (CheckedMul(row_bytes, tensor.rows) != std::optional<uint64_t>(tensor.bytes.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(tensor), ": ", tensor.bytes.size(), " bytes do not fit its shape"));
  }
  return absl::OkStatus();
}

size_t PanelBytes(TensorType type, uint32_t inputs) {
  switch (type) {
    case TensorType::kF32:
      return size_t{inputs} * kPanel * sizeof(float);
    case TensorType::kF16:
    case TensorType::kBF16:
      return size_t{inputs} * kPanel * sizeof(Half);
    case TensorType::kQ4_0:
      return inputs / kBlock * sizeof(PanelQ4_0);
    case TensorType::kQ4_1:
      return inputs / kBlock * sizeof(PanelQ4_1);
    case TensorType::kQ8_0:
      return inputs / kBlock * sizeof(PanelQ8_0);
  }
  return 0;
}

// Each writes output `lane` of a panel from the bytes of one row.
void PackQ4_0(const std::byte* row, uint32_t inputs, uint32_t lane, std::byte* panel) {
  auto* blocks = reinterpret_cast<PanelQ4_0*>(panel);
  for (uint32_t b = 0; b < inputs / kBlock; ++b, row += 18) {
    std::memcpy(&blocks[b].scale[lane], row, 2);
    for (uint32_t g = 0; g < 4; ++g) std::memcpy(blocks[b].nibbles[g][lane], row + 2 + 4 * g, 4);
  }
}

void PackQ4_1(const std::byte* row, uint32_t inputs, uint32_t lane, std::byte* panel) {
  auto* blocks = reinterpret_cast<PanelQ4_1*>(panel);
  for (uint32_t b = 0; b < inputs / kBlock; ++b, row += 20) {
    std::memcpy(&blocks[b].scale[lane], row, 2);
    std::memcpy(&blocks[b].min[lane], row + 2, 2);
    for (uint32_t g = 0; g < 4; ++g) std::memcpy(blocks[b].nibbles[g][lane], row + 4 + 4 * g, 4);
  }
}

void PackQ8_0(const std::byte* row, uint32_t inputs, uint32_t lane, std::byte* panel) {
  auto* blocks = reinterpret_cast<PanelQ8_0*>(panel);
  for (uint32_t b = 0; b < inputs / kBlock; ++b, row += 34) {
    std::memcpy(&blocks[b].scale[lane], row, 2);
    for (uint32_t p = 0; p < kBlock / 2; ++p) {
      std::memcpy(blocks[b].values[p][lane], row + 2 + 2 * p, 2);
    }
  }
}

template <size_t kBytes>
void PackDense(const std::byte* row, uint32_t inputs, uint32_t lane, std::byte* panel) {
  for (size_t k = 0; k < inputs; ++k) {
    std::memcpy(panel + (k * kPanel + lane) * kBytes, row + k * kBytes, kBytes);
  }
}

void PackRow(TensorType type, const std::byte* row, uint32_t inputs, uint32_t lane,
             std::byte* panel) {
  switch (type) {
    case TensorType::kF32:
      return PackDense<4>(row, inputs, lane, panel);
    case TensorType::kF16:
    case TensorType::kBF16:
      return PackDense<2>(row, inputs, lane, panel);
    case TensorType::kQ4_0:
      return PackQ4_0(row, inputs, lane, panel);
    case TensorType::kQ4_1:
      return PackQ4_1(row, inputs, lane, panel);
    case TensorType::kQ8_0:
      return PackQ8_0(row, inputs, lane, panel);
  }
}

absl::StatusOr<WeightPart> PackPart(const RawTensor& tensor, uint32_t first_output,
                                    HugeMemory& memory, ThreadPool& pool) {
  const auto inputs = static_cast<uint32_t>(tensor.cols);
  WeightPart part;
  part.type = tensor.type;
  part.rows = static_cast<uint32_t>(tensor.rows);
  part.first_output = first_output;
  part.panels = (part.rows + kPanel - 1) / kPanel;
  part.panel_bytes = PanelBytes(tensor.type, inputs);
  BATON_ASSIGN_OR_RETURN(std::byte * data, memory.Allocate(part.panels * part.panel_bytes));
  part.panel_data = data;
  const size_t row_bytes = tensor.bytes.size() / tensor.rows;
  pool.ForRange(part.panels, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin * kPanel; row < std::min(end * kPanel, part.rows); ++row) {
      PackRow(part.type, tensor.bytes.data() + row * row_bytes, inputs, row % kPanel,
              data + row / kPanel * part.panel_bytes);
    }
  });
  return part;
}

// Input `i` of a block, of output `lane`.
int NibbleAt(const PanelNibbles& nibbles, uint32_t lane, uint32_t i) {
  const uint32_t j = i % 16;
  const int byte = nibbles[j / 4][lane][j % 4];
  return i < 16 ? byte & 15 : byte >> 4;
}

void ReadQ4_0(const std::byte* panel, uint32_t inputs, uint32_t lane, float* out) {
  const auto* blocks = reinterpret_cast<const PanelQ4_0*>(panel);
  for (uint32_t i = 0; i < inputs; ++i) {
    const PanelQ4_0& block = blocks[i / kBlock];
    const int nibble = NibbleAt(block.nibbles, lane, i % kBlock);
    out[i] = HalfToFloat(block.scale[lane]) * static_cast<float>(nibble - 8);
  }
}

void ReadQ4_1(const std::byte* panel, uint32_t inputs, uint32_t lane, float* out) {
  const auto* blocks = reinterpret_cast<const PanelQ4_1*>(panel);
  for (uint32_t i = 0; i < inputs; ++i) {
    const PanelQ4_1& block = blocks[i / kBlock];
    const int nibble = NibbleAt(block.nibbles, lane, i % kBlock);
    out[i] =
        HalfToFloat(block.scale[lane]) * static_cast<float>(nibble) + HalfToFloat(block.min[lane]);
  }
}

void ReadQ8_0(const std::byte* panel, uint32_t inputs, uint32_t lane, float* out) {
  const auto* blocks = reinterpret_cast<const PanelQ8_0*>(panel);
  for (uint32_t i = 0; i < inputs; ++i) {
    const PanelQ8_0& block = blocks[i / kBlock];
    const int8_t value = block.values[i % kBlock / 2][lane][i % 2];
    out[i] = HalfToFloat(block.scale[lane]) * static_cast<float>(value);
  }
}

void ReadF16(const std::byte* panel, uint32_t inputs, uint32_t lane, float* out) {
  const auto* values = reinterpret_cast<const Half*>(panel);
  for (uint32_t i = 0; i < inputs; ++i) out[i] = HalfToFloat(values[size_t{i} * kPanel + lane]);
}

void ReadBF16(const std::byte* panel, uint32_t inputs, uint32_t lane, float* out) {
  const auto* values = reinterpret_cast<const uint16_t*>(panel);
  for (uint32_t i = 0; i < inputs; ++i) out[i] = BFloat16ToFloat(values[size_t{i} * kPanel + lane]);
}

void ReadF32(const std::byte* panel, uint32_t inputs, uint32_t lane, float* out) {
  const auto* values = reinterpret_cast<const float*>(panel);
  for (uint32_t i = 0; i < inputs; ++i) out[i] = values[size_t{i} * kPanel + lane];
}

Form FormOf(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
      return kInt8;
    case TensorType::kQ8_0:
      return kInt16;
    case TensorType::kF16:
    case TensorType::kBF16:
    case TensorType::kF32:
      break;
  }
  return kFloat;
}

// Of a PartOrder::kGateUp.
constexpr size_t kUpPart = 1;

Forms ResidualOf(TensorType type, PartOrder order, size_t part) {
  if (FormOf(type) != kInt8) return 0;
  switch (order) {
    case PartOrder::kQueryKeyValue:
      return kResidual;
    case PartOrder::kGateUp:
      return part == kUpPart ? Forms{kResidualOfFew} : 0;
    case PartOrder::kConcatenated:
      return 0;
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuWeight>> CpuWeight::Pack(std::span<const RawTensor> tensors,
                                                           PartOrder order, HugeMemory& memory,
                                                           ThreadPool& pool) {
  BATON_CHECK(!tensors.empty());
  uint64_t outputs = 0;
  for (const RawTensor& tensor : tensors) {
    BATON_RETURN_IF_ERROR(Check(tensor, tensors[0].cols));
    outputs += tensor.rows;
  }
  const bool gate_up = order == PartOrder::kGateUp;
  if (gate_up) {
    BATON_CHECK(tensors.size() == 2);
    if (tensors[0].rows != tensors[1].rows) {
      return absl::InvalidArgumentError(NameOf(tensors[1]) + ": not of the shape of its partner");
    }
    outputs = tensors[0].rows;
  }
  if (outputs > kMaxDimension) {
    return absl::InvalidArgumentError(NameOf(tensors[0]) + ": too many rows");
  }
  std::unique_ptr<CpuWeight> weight(new CpuWeight(static_cast<uint32_t>(outputs),
                                                  static_cast<uint32_t>(tensors[0].cols), gate_up));
  uint32_t first_output = 0;
  for (const RawTensor& tensor : tensors) {
    BATON_ASSIGN_OR_RETURN(WeightPart part, PackPart(tensor, first_output, memory, pool));
    part.residual = ResidualOf(part.type, order, weight->parts_.size());
    weight->parts_.push_back(part);
    if (!gate_up) first_output += part.rows;
  }
  return weight;
}

Forms CpuWeight::input_forms() const {
  Forms forms = 0;
  for (const WeightPart& part : parts_) {
    forms |= FormOf(part.type) | part.residual;
  }
  return forms;
}

void CpuWeight::ReadRow(uint32_t output, float* out) const {
  BATON_CHECK(parts_.size() == 1 && output < outputs());
  const WeightPart& part = parts_[0];
  const std::byte* panel = part.panel(output / kPanel);
  const uint32_t lane = output % kPanel;
  switch (part.type) {
    case TensorType::kF32:
      return ReadF32(panel, inputs(), lane, out);
    case TensorType::kF16:
      return ReadF16(panel, inputs(), lane, out);
    case TensorType::kBF16:
      return ReadBF16(panel, inputs(), lane, out);
    case TensorType::kQ4_0:
      return ReadQ4_0(panel, inputs(), lane, out);
    case TensorType::kQ4_1:
      return ReadQ4_1(panel, inputs(), lane, out);
    case TensorType::kQ8_0:
      return ReadQ8_0(panel, inputs(), lane, out);
  }
}

}  // namespace baton::kernels::cpu
