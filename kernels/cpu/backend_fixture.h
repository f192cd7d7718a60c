// A cpu backend and what its tests put into it.
#ifndef BATON_KERNELS_CPU_BACKEND_FIXTURE_H_
#define BATON_KERNELS_CPU_BACKEND_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/testing.h"

namespace baton::kernels::cpu {

struct Configuration {
  std::string_view tier;
  uint32_t threads;
};
inline constexpr Configuration kConfigurations[] = {{"scalar", 1}, {"", 1}, {"", 2}, {"", 3}};

inline std::unique_ptr<Backend> Create(const Configuration& configuration, KvType kv_type) {
  auto backend = CreateCpuBackend({.threads = configuration.threads,
                                   .tier = std::string(configuration.tier),
                                   .kv_type = kv_type});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

inline std::unique_ptr<PackedWeight> PackOne(Backend& backend, const OwnedTensor& tensor) {
  const RawTensor raw = tensor.raw();
  auto weight = backend.Pack({&raw, 1}, PartOrder::kConcatenated);
  EXPECT_TRUE(weight.ok()) << weight.status();
  return *std::move(weight);
}

// An F32 table whose rows are `values`: Embed then puts chosen numbers into an activation.
inline OwnedTensor Table(const std::vector<float>& values, uint32_t cols) {
  OwnedTensor table{TensorType::kF32, static_cast<uint32_t>(values.size() / cols), cols, {}};
  table.bytes.resize(values.size() * 4);
  std::memcpy(table.bytes.data(), values.data(), table.bytes.size());
  return table;
}

class Fixture {
 public:
  explicit Fixture(const Configuration& configuration, KvType kv_type = KvType::kF16)
      : backend(Create(configuration, kv_type)) {}

  std::unique_ptr<Activation> Rows(const std::vector<float>& values, uint32_t cols) {
    const auto rows = static_cast<uint32_t>(values.size() / cols);
    auto x = backend->NewActivation(rows, cols);
    std::vector<TokenId> tokens(rows);
    for (uint32_t i = 0; i < rows; ++i) tokens[i] = static_cast<TokenId>(i);
    backend->Embed(*PackOne(*backend, Table(values, cols)), tokens, *x);
    return x;
  }
  std::unique_ptr<PackedWeight> Gain(const std::vector<float>& values) {
    OwnedTensor tensor = Table(values, static_cast<uint32_t>(values.size()));
    auto gain = backend->PackGain(tensor.raw());
    EXPECT_TRUE(gain.ok());
    return *std::move(gain);
  }
  std::vector<double> All(const Activation& a) {
    std::vector<double> all;
    for (uint32_t row = 0; row < a.rows(); ++row) {
      const auto values = backend->Read(a, row);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  std::unique_ptr<Backend> backend;
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_BACKEND_FIXTURE_H_
