#include "gguf/gguf_types.h"

namespace baton {

std::optional<GgufTypeTraits> TensorTypeTraits(uint32_t type) {
  switch (static_cast<GgufTensorType>(type)) {
    case GgufTensorType::kF32:
      return GgufTypeTraits{"F32", 1, 4};
    case GgufTensorType::kF16:
      return GgufTypeTraits{"F16", 1, 2};
    case GgufTensorType::kQ4_0:
      return GgufTypeTraits{"Q4_0", 32, 18};
    case GgufTensorType::kQ4_1:
      return GgufTypeTraits{"Q4_1", 32, 20};
    case GgufTensorType::kQ5_0:
      return GgufTypeTraits{"Q5_0", 32, 22};
    case GgufTensorType::kQ5_1:
      return GgufTypeTraits{"Q5_1", 32, 24};
    case GgufTensorType::kQ8_0:
      return GgufTypeTraits{"Q8_0", 32, 34};
    case GgufTensorType::kQ8_1:
      return GgufTypeTraits{"Q8_1", 32, 36};
    case GgufTensorType::kQ2_K:
      return GgufTypeTraits{"Q2_K", 256, 84};
    case GgufTensorType::kQ3_K:
      return GgufTypeTraits{"Q3_K", 256, 110};
    case GgufTensorType::kQ4_K:
      return GgufTypeTraits{"Q4_K", 256, 144};
    case GgufTensorType::kQ5_K:
      return GgufTypeTraits{"Q5_K", 256, 176};
    case GgufTensorType::kQ6_K:
      return GgufTypeTraits{"Q6_K", 256, 210};
    case GgufTensorType::kQ8_K:
      return GgufTypeTraits{"Q8_K", 256, 292};
    case GgufTensorType::kIQ4_NL:
      return GgufTypeTraits{"IQ4_NL", 32, 18};
    case GgufTensorType::kIQ4_XS:
      return GgufTypeTraits{"IQ4_XS", 256, 136};
    case GgufTensorType::kI8:
      return GgufTypeTraits{"I8", 1, 1};
    case GgufTensorType::kI16:
      return GgufTypeTraits{"I16", 1, 2};
    case GgufTensorType::kI32:
      return GgufTypeTraits{"I32", 1, 4};
    case GgufTensorType::kI64:
      return GgufTypeTraits{"I64", 1, 8};
    case GgufTensorType::kF64:
      return GgufTypeTraits{"F64", 1, 8};
    case GgufTensorType::kBF16:
      return GgufTypeTraits{"BF16", 1, 2};
  }
  return std::nullopt;
}

std::optional<std::string_view> ValueTypeName(uint32_t type) {
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kUint8:
      return "UINT8";
    case GgufValueType::kInt8:
      return "INT8";
    case GgufValueType::kUint16:
      return "UINT16";
    case GgufValueType::kInt16:
      return "INT16";
    case GgufValueType::kUint32:
      return "UINT32";
    case GgufValueType::kInt32:
      return "INT32";
    case GgufValueType::kFloat32:
      return "FLOAT32";
    case GgufValueType::kBool:
      return "BOOL";
    case GgufValueType::kString:
      return "STRING";
    case GgufValueType::kArray:
      return "ARRAY";
    case GgufValueType::kUint64:
      return "UINT64";
    case GgufValueType::kInt64:
      return "INT64";
    case GgufValueType::kFloat64:
      return "FLOAT64";
  }
  return std::nullopt;
}

uint32_t ScalarBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

}  // namespace baton
