#include "kernels/quant_oracle.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

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
  std::memcpy(out.data(), bytes.data(), out.size() * 4);
  return out;
}

}  // namespace

std::optional<QuantVector> QuantOracle(std::string_view format) {
  const char* shared = std::getenv("BATON_SHARED");
  if (shared == nullptr) {
    const char* ci = std::getenv("CI");
    if (ci != nullptr && std::string_view(ci) == "true") ADD_FAILURE() << "BATON_SHARED is not set";
    return std::nullopt;
  }
  std::ifstream file(std::string(shared) + "/oracles/quant/ggml_quant_vectors.json");
  const auto oracle = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (oracle.is_object()) {
    const auto& vectors = oracle["vectors"];
    for (const auto& vector : vectors) {
      if (vector["type"] != format) continue;
      // The formats that can be written share the input of the first entry.
      return QuantVector{Floats(FromBase64(vectors[0]["input_f32_b64"])),
                         FromBase64(vector["quantized_b64"]),
                         Floats(FromBase64(vector["dequantized_f32_b64"]))};
    }
  }
  ADD_FAILURE() << "no quantisation oracle for " << format;
  return std::nullopt;
}

}  // namespace baton::kernels
