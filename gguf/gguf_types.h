// The types a GGUF v3 file may name: of metadata values and of tensor elements.
#ifndef BATON_GGUF_GGUF_TYPES_H_
#define BATON_GGUF_GGUF_TYPES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace baton {

// Numbers are those in the file.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Numbers are those in the file. Types whose numbers are not listed are refused when the tensor
// directory is read, because their size in bytes is unknown.
enum class GgufTensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kBF16 = 30,
};

// A row is stored as whole blocks: `block_elements` values in `block_bytes` bytes.
struct GgufTypeTraits {
  std::string_view name;
  uint32_t block_elements;
  uint32_t block_bytes;
};

// A metadata value inside the file, fully checked by the parser.
struct GgufValue {
  GgufValueType type = GgufValueType::kUint8;
  GgufValueType element_type = GgufValueType::kUint8;  // kArray only
  uint64_t count = 1;                  // elements of an array, bytes of a string, else 1
  std::span<const std::byte> payload;  // what follows the length or count field
  uint64_t file_offset = 0;            // of the payload
};

struct GgufTensor {
  std::string_view name;
  GgufTensorType type = GgufTensorType::kF32;
  uint32_t rank = 1;                         // 1..4
  std::array<uint64_t, 4> dims{1, 1, 1, 1};  // dims[0] varies fastest: the width of a row
  std::span<const std::byte> bytes;  // row after row, whole blocks; aligned as the file says
  uint64_t file_offset = 0;

  uint64_t Rows() const { return dims[1] * dims[2] * dims[3]; }
};

// nullopt for a number that is no listed type.
std::optional<GgufTypeTraits> TensorTypeTraits(uint32_t type);
std::optional<std::string_view> ValueTypeName(uint32_t type);

// Bytes of one scalar; 0 for strings and arrays.
uint32_t ScalarBytes(GgufValueType type);

}  // namespace baton

#endif  // BATON_GGUF_GGUF_TYPES_H_
