// The invariant of DESIGN section 7 on the real model: any chunking, thread count and instruction
// set gives the same bytes in every KV block and every logit.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "model/model_harness.h"
#include "tests/golden/environment.h"
#include "tests/golden/oracle.h"

namespace baton::golden {
namespace {

using model::ModelHarness;

constexpr uint32_t kLength = 37;

struct Outcome {
  std::vector<std::vector<double>> logits;  // of the last positions
  std::string kv;
  bool operator==(const Outcome&) const = default;
};

std::unique_ptr<ModelHarness> Harness(const std::string& backend, uint32_t threads) {
  ModelHarness::Options options;
  options.load.path = ModelPath();
  options.load.backend = backend;
  options.load.threads = threads;
  options.load.context = 64;
  options.positions = 64;
  auto harness = ModelHarness::Create(options);
  EXPECT_TRUE(harness.ok()) << harness.status();
  return harness.ok() ? *std::move(harness) : nullptr;
}

Outcome InChunks(ModelHarness& harness, const std::vector<TokenId>& tokens, uint32_t chunk) {
  harness.Restart();
  Outcome outcome;
  harness.RunAll(tokens, chunk, kLength - 4,
                 [&](std::vector<double> row) { outcome.logits.push_back(std::move(row)); });
  outcome.kv = harness.KvBytes(0);
  return outcome;
}

TEST(RealModelEqualityTest, PrefillEqualsDecodeInAnyChunksOnAnyThreadsAndTier) {
  BATON_NEEDS_MODEL_AND_ORACLES();
  const auto layers = ReadLayersCase(OracleFolder());
  ASSERT_TRUE(layers.ok()) << layers.status();
  std::vector<TokenId> tokens = layers->prompt;
  tokens.resize(kLength, 1);
  const auto one_thread = Harness("cpu", 1);
  ASSERT_NE(one_thread, nullptr);
  const Outcome whole = InChunks(*one_thread, tokens, kLength);
  const auto two_threads = Harness("cpu", 2);
  ASSERT_NE(two_threads, nullptr);
  for (const uint32_t chunk : {1u, 7u, 16u, kLength}) {
    EXPECT_TRUE(InChunks(*two_threads, tokens, chunk) == whole) << "chunks of " << chunk;
  }
  const auto scalar = Harness("cpu-scalar", 2);
  ASSERT_NE(scalar, nullptr);
  EXPECT_TRUE(InChunks(*scalar, tokens, 16) == whole) << "scalar";
}

}  // namespace
}  // namespace baton::golden
