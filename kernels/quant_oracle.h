// The expected values of an independent implementation of the tensor formats, for tests.
#ifndef BATON_KERNELS_QUANT_ORACLE_H_
#define BATON_KERNELS_QUANT_ORACLE_H_

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace baton::kernels {

struct QuantVector {
  std::vector<float> input;
  std::vector<std::byte> quantized;  // `input` in the format's blocks
  std::vector<float> dequantized;    // `quantized` as floats again
};

// Of the format with this name in GGUF. nullopt when the environment names no folder of oracles,
// which fails the calling test where CI=true; a folder without this format always fails it.
std::optional<QuantVector> QuantOracle(std::string_view format);

}  // namespace baton::kernels

#endif  // BATON_KERNELS_QUANT_ORACLE_H_
