// The free kernels compute the same sums up to rounding: a comparison of speed compares like with
// like.
#include "benchmarks/free_attention.h"
#include "benchmarks/free_order_case.h"
#include "gtest/gtest.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/tiers.h"

namespace baton::benchmarks {
namespace {

using kernels::TensorType;
using kernels::cpu::CpuActivation;
using kernels::cpu::Tier;
using kernels::cpu::TierEntry;

// Calls body(tier, kernels) where both run.
template <typename Body>
void ForTiers(const Body& body) {
  int compared = 0;
  for (const TierEntry& entry : kernels::cpu::Tiers()) {
    const FreeKernels* kernels = FreeKernelsOfTier(*entry.tier);
    if (!entry.runs || kernels == nullptr) continue;
    SCOPED_TRACE(entry.tier->name);
    body(*entry.tier, *kernels);
    ++compared;
  }
  if (compared == 0) GTEST_SKIP() << "the processor has no AVX2";
}

void ExpectNear(const CpuActivation& a, const CpuActivation& b, double tolerance) {
  for (uint32_t row = 0; row < a.rows(); ++row) {
    for (uint32_t i = 0; i < a.cols(); ++i) {
      ASSERT_NEAR(a.values(row)[i], b.values(row)[i], tolerance) << row << ", " << i;
    }
  }
}

TEST(FreeOrderTest, LinearsComputeTheSameSums) {
  ForTiers([](const Tier& tier, const FreeKernels& kernels) {
    const Tier free = FreeTier(tier, kernels);
    kernels::cpu::ThreadPool pool(2);
    for (const TensorType type : {TensorType::kQ4_1, TensorType::kF16}) {
      for (const uint32_t rows : {1u, 2u, 3u, 7u, 8u, 9u, 21u}) {
        const LinearCase one(type, rows, 1, tier);
        CpuActivation expected(rows, kCaseOutputs), actual(rows, kCaseOutputs);
        expected.SetForms(kernels::cpu::kFloat);
        actual.SetForms(kernels::cpu::kFloat);
        kernels::cpu::RunLinear(tier, pool, one.weight(0), one.in(), {expected});
        kernels::cpu::RunLinear(free, pool, one.weight(0), one.in(), {actual});
        ExpectNear(expected, actual, 1e-3);
      }
    }
  });
}

TEST(FreeOrderTest, AttentionReadsTheSameKeysAndValues) {
  ForTiers([](const Tier& tier, const FreeKernels& kernels) {
    for (const uint32_t threads : {1u, 3u}) {
      kernels::cpu::ThreadPool pool(threads);
      for (const uint32_t sequences : {1u, 5u}) {
        for (const uint32_t context : {1u, 15u, 16u, 17u, 250u, 300u, 1000u}) {
          const DecodeCase one(sequences, context, 2);
          CpuActivation expected(sequences, kCaseInputs), actual(sequences, kCaseInputs);
          expected.SetForms(kernels::cpu::kFloat);
          actual.SetForms(kernels::cpu::kFloat);
          kernels::cpu::Attention(tier, pool).Run(one.call(1), one.qkv(), expected);
          FreeAttention(kernels, tier, pool).Run(one.call(1), one.qkv(), actual);
          ExpectNear(expected, actual, 1e-4);
        }
      }
    }
  });
}

}  // namespace
}  // namespace baton::benchmarks
