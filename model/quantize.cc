#include "model/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "common/check.h"

namespace baton::model {
namespace {

constexpr size_t kBlock = 32;

template <typename T>
void Append(std::string& out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void AppendQ8_0(std::string& out, std::span<const float> block) {
  float max = 0;
  for (const float v : block) max = std::max(max, std::fabs(v));
  const float scale = max / 127.0f;
  const float inverse = scale != 0 ? 1.0f / scale : 0.0f;
  Append(out, HalfFromFloat(scale));
  for (const float v : block) Append(out, static_cast<int8_t>(std::roundf(v * inverse)));
}

// Two levels, the lower one in the low bits, for each i.
template <typename Level>
void AppendNibbles(std::string& out, std::span<const float> block, const Level& level) {
  for (size_t i = 0; i < kBlock / 2; ++i) {
    Append(out, static_cast<uint8_t>(level(block[i]) | level(block[i + kBlock / 2]) << 4));
  }
}

// The value of largest magnitude becomes -8 steps.
void AppendQ4_0(std::string& out, std::span<const float> block) {
  const float extreme = *std::max_element(
      block.begin(), block.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const float scale = extreme / -8.0f;
  const float inverse = scale != 0 ? 1.0f / scale : 0.0f;
  Append(out, HalfFromFloat(scale));
  AppendNibbles(out, block,
                [&](float v) { return std::min(15, static_cast<int>(v * inverse + 8.5f)); });
}

void AppendQ4_1(std::string& out, std::span<const float> block) {
  const float min = *std::min_element(block.begin(), block.end());
  const float max = *std::max_element(block.begin(), block.end());
  const float scale = (max - min) / 15.0f;
  const float inverse = scale != 0 ? 1.0f / scale : 0.0f;
  Append(out, HalfFromFloat(scale));
  Append(out, HalfFromFloat(min));
  AppendNibbles(out, block, [&](float v) {
    return std::min(15, static_cast<int>((v - min) * inverse + 0.5f));
  });
}

void AppendBlock(std::string& out, std::span<const float> block, GgufTensorType type) {
  switch (type) {
    case GgufTensorType::kQ4_0:
      return AppendQ4_0(out, block);
    case GgufTensorType::kQ4_1:
      return AppendQ4_1(out, block);
    case GgufTensorType::kQ8_0:
      return AppendQ8_0(out, block);
    default:
      BATON_CHECK(false && "no such format in test models");
  }
}

}  // namespace

uint16_t HalfFromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to 65536 or more
  if (magnitude < 0x38800000) {                       // subnormal half: a multiple of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
    return sign | static_cast<uint16_t>(std::nearbyintf(scaled));
  }
  const uint32_t odd = magnitude >> 13 & 1;
  return sign | static_cast<uint16_t>((magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

float FloatFromHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t BFloat16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

std::string Quantize(std::span<const float> values, GgufTensorType type) {
  std::string out;
  switch (type) {
    case GgufTensorType::kF32:
      for (const float v : values) Append(out, v);
      return out;
    case GgufTensorType::kF16:
      for (const float v : values) Append(out, HalfFromFloat(v));
      return out;
    case GgufTensorType::kBF16:
      for (const float v : values) Append(out, BFloat16FromFloat(v));
      return out;
    default:
      BATON_CHECK(values.size() % kBlock == 0);
      for (size_t i = 0; i < values.size(); i += kBlock) {
        AppendBlock(out, values.subspan(i, kBlock), type);
      }
      return out;
  }
}

}  // namespace baton::model
