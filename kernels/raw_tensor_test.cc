#include "kernels/raw_tensor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace baton::kernels {
namespace {

std::vector<std::byte> FromBase64(const std::string& text) {
  std::vector<std::byte> out;
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    const char* alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char* at = std::strchr(alphabet, c);
    if (c == '=' || at == nullptr) break;
    bits = bits << 6 | static_cast<uint32_t>(at - alphabet);
    if ((count += 6) >= 8) out.push_back(static_cast<std::byte>(bits >> (count -= 8)));
  }
  return out;
}

std::vector<float> Floats(const std::vector<std::byte>& bytes) {
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

std::optional<TensorType> TypeNamed(const std::string& name) {
  for (auto type : {TensorType::kF32, TensorType::kF16, TensorType::kQ4_1, TensorType::kQ8_0}) {
    if (InfoOf(type)->name == name) return type;
  }
  return std::nullopt;
}

TEST(DequantizeTest, AgreesWithTheReferenceImplementationOfEachFormat) {
  const char* shared = std::getenv("BATON_SHARED");
  const char* ci = std::getenv("CI");
  if (shared == nullptr) {
    if (ci != nullptr && std::string(ci) == "true") FAIL() << "BATON_SHARED is not set";
    GTEST_SKIP() << "BATON_SHARED is not set: no quantisation oracle";
  }
  std::ifstream file(std::string(shared) + "/oracles/quant/ggml_quant_vectors.json");
  ASSERT_TRUE(file.good());
  int checked = 0;
  const auto oracle = nlohmann::json::parse(file);
  for (const auto& vector : oracle["vectors"]) {
    const auto type = TypeNamed(vector["type"]);
    if (!type.has_value()) continue;
    const auto bytes = FromBase64(vector["quantized_b64"]);
    const auto expected = Floats(FromBase64(vector["dequantized_f32_b64"]));
    ASSERT_FALSE(expected.empty());
    std::vector<float> actual(expected.size());
    Dequantize(*type, bytes, actual);
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_FLOAT_EQ(actual[i], expected[i]) << vector["type"] << " value " << i;
    }
    ++checked;
  }
  EXPECT_EQ(checked, 3);  // F16, Q4_1, Q8_0
}

}  // namespace
}  // namespace baton::kernels
