// Writes float rows in the tensor formats of GGUF (the reference rounding of ggml). For test models
// only: Baton itself never quantises weights.
#ifndef BATON_MODEL_QUANTIZE_H_
#define BATON_MODEL_QUANTIZE_H_

#include <cstdint>
#include <span>
#include <string>

#include "gguf/gguf_types.h"

namespace baton::model {

// Round to nearest even; overflow becomes infinity.
uint16_t HalfFromFloat(float value);
float FloatFromHalf(uint16_t half);
// Round to nearest even, as bfloat16.
uint16_t BFloat16FromFloat(float value);

// What Quantize writes.
inline constexpr GgufTensorType kQuantizeFormats[] = {GgufTensorType::kF32,  GgufTensorType::kF16,
                                                      GgufTensorType::kBF16, GgufTensorType::kQ4_0,
                                                      GgufTensorType::kQ4_1, GgufTensorType::kQ8_0};

// One of kQuantizeFormats; values.size() is a multiple of the format's block.
std::string Quantize(std::span<const float> values, GgufTensorType type);

}  // namespace baton::model

#endif  // BATON_MODEL_QUANTIZE_H_
