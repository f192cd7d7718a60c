#include "kernels/raw_tensor.h"

#include <bit>
#include <cstring>

#include "common/check.h"
#include "kernels/half.h"

namespace baton::kernels {
namespace {

uint16_t BitsAt(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

float HalfAt(const std::byte* p) { return HalfToFloat(BitsAt(p)); }

// {half d, 16 bytes}: value = d * (nibble - 8); low nibbles are values 0..15.
void DequantizeQ4_0(const std::byte* block, float* out) {
  const float d = HalfAt(block);
  for (int i = 0; i < 16; ++i) {
    const auto byte = std::to_integer<int>(block[2 + i]);
    out[i] = d * static_cast<float>((byte & 15) - 8);
    out[i + 16] = d * static_cast<float>((byte >> 4) - 8);
  }
}

// {half d, half m, 16 bytes}: value = d * nibble + m; low nibbles are values 0..15.
void DequantizeQ4_1(const std::byte* block, float* out) {
  const float d = HalfAt(block);
  const float m = HalfAt(block + 2);
  for (int i = 0; i < 16; ++i) {
    const auto byte = std::to_integer<uint32_t>(block[4 + i]);
    out[i] = d * static_cast<float>(byte & 15) + m;
    out[i + 16] = d * static_cast<float>(byte >> 4) + m;
  }
}

// {half d, 32 signed bytes}: value = d * byte.
void DequantizeQ8_0(const std::byte* block, float* out) {
  const float d = HalfAt(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(static_cast<int8_t>(std::to_integer<uint8_t>(block[2 + i])));
  }
}

void DequantizeBlock(TensorType type, const std::byte* block, float* out) {
  switch (type) {
    case TensorType::kF32:
      std::memcpy(out, block, sizeof *out);
      return;
    case TensorType::kF16:
      *out = HalfAt(block);
      return;
    case TensorType::kBF16:
      *out = BFloat16ToFloat(BitsAt(block));
      return;
    case TensorType::kQ4_0:
      return DequantizeQ4_0(block, out);
    case TensorType::kQ4_1:
      return DequantizeQ4_1(block, out);
    case TensorType::kQ8_0:
      return DequantizeQ8_0(block, out);
  }
}

}  // namespace

std::optional<TensorTypeInfo> InfoOf(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return TensorTypeInfo{"F32", 1, 4};
    case TensorType::kF16:
      return TensorTypeInfo{"F16", 1, 2};
    case TensorType::kBF16:
      return TensorTypeInfo{"BF16", 1, 2};
    case TensorType::kQ4_0:
      return TensorTypeInfo{"Q4_0", 32, 18};
    case TensorType::kQ4_1:
      return TensorTypeInfo{"Q4_1", 32, 20};
    case TensorType::kQ8_0:
      return TensorTypeInfo{"Q8_0", 32, 34};
  }
  return std::nullopt;
}

void Dequantize(TensorType type, std::span<const std::byte> bytes, std::span<float> out) {
  const auto info = InfoOf(type);
  BATON_CHECK(info.has_value());
  BATON_CHECK(out.size() % info->block_values == 0);
  BATON_CHECK(bytes.size() == out.size() / info->block_values * info->block_bytes);
  const std::byte* block = bytes.data();
  for (size_t i = 0; i < out.size(); i += info->block_values, block += info->block_bytes) {
    DequantizeBlock(type, block, &out[i]);
  }
}

}  // namespace baton::kernels
