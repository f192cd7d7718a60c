// Random tensors and rows for the tests and benchmarks of this folder.
#ifndef BATON_KERNELS_CPU_TESTING_H_
#define BATON_KERNELS_CPU_TESTING_H_

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/half.h"
#include "kernels/raw_tensor.h"

namespace baton::kernels::cpu {

struct OwnedTensor {
  TensorType type = TensorType::kF32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::vector<std::byte> bytes;

  RawTensor raw() const { return {"test", type, rows, cols, bytes}; }
  std::vector<float> Values() const {
    std::vector<float> values(size_t{rows} * cols);
    Dequantize(type, bytes, values);
    return values;
  }
};

inline std::vector<float> RandomFloats(std::mt19937_64& random, size_t n, float deviation = 1) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// Weights of the size that trained models have.
inline OwnedTensor RandomTensor(std::mt19937_64& random, TensorType type, uint32_t rows,
                                uint32_t cols) {
  const TensorTypeInfo info = *InfoOf(type);
  OwnedTensor tensor{type, rows, cols, {}};
  const size_t blocks = size_t{rows} * cols / info.block_values;
  tensor.bytes.resize(blocks * info.block_bytes);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (size_t b = 0; b < blocks; ++b) {
    std::byte* block = &tensor.bytes[b * info.block_bytes];
    for (uint32_t i = 0; i < info.block_bytes; ++i) block[i] = static_cast<std::byte>(random());
    const float value = 0.05f * uniform(random);
    const Half half = FloatToHalf(value);
    const Half min = FloatToHalf(-8 * value);
    if (type == TensorType::kF32) {
      std::memcpy(block, &value, 4);
    } else if (type == TensorType::kBF16) {
      const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
      std::memcpy(block, &bits, 2);
    } else {
      std::memcpy(block, &half, 2);
    }
    if (type == TensorType::kQ4_1) std::memcpy(block + 2, &min, 2);
  }
  return tensor;
}

inline constexpr TensorType kAllTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBF16,
                                           TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ8_0};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_TESTING_H_
