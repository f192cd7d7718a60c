// A weight tensor as it lies in a GGUF file: what a backend packs.
#ifndef BATON_KERNELS_RAW_TENSOR_H_
#define BATON_KERNELS_RAW_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace baton::kernels {

// The numbers are GGUF's.
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ8_0 = 8,
  kBF16 = 30,
};

struct TensorTypeInfo {
  std::string_view name;
  uint32_t block_values = 1;  // consecutive values of a row that form one block
  uint32_t block_bytes = 0;
};

// nullopt for a type this version does not know.
std::optional<TensorTypeInfo> InfoOf(TensorType type);

// Row-major [rows, cols]; GGUF lists the same dimensions as {cols, rows}. Owns nothing.
struct RawTensor {
  std::string_view name;  // for error texts
  TensorType type = TensorType::kF32;
  uint64_t rows = 0;
  uint64_t cols = 0;
  std::span<const std::byte> bytes;
};

// Dequantises `count` values that begin on a block boundary; the plain definition of each format,
// used by `reference`, tests and gain vectors. `bytes` holds exactly their blocks.
void Dequantize(TensorType type, std::span<const std::byte> bytes, std::span<float> out);

}  // namespace baton::kernels

#endif  // BATON_KERNELS_RAW_TENSOR_H_
