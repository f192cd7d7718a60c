#include "benchmarks/materialised_attention.h"

#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/tiers.h"
#include "kv/arena.h"
#include "model/load.h"
#include "model/tiny_model.h"

namespace baton::benchmarks {
namespace {

constexpr uint32_t kRows = 300;  // beyond one segment of the online softmax

// The backend's own attention of the first layer and the same from a matrix of scores.
TEST(MaterialisedAttentionTest, IsWhatTheBackendsAttentionComputes) {
  const std::string path = ::testing::TempDir() + "tiny.gguf";
  model::TinyModelOptions tiny;
  tiny.matrices = GgufTensorType::kF32;  // whose activations stay as they are
  ASSERT_TRUE(model::WriteTinyModel(tiny, path).ok());
  model::LoadOptions load;
  load.path = path;
  auto model = model::Load(load);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto arena = kv::KvArena::Create(model->layout, {.blocks = {kRows / 16 + 1}});
  ASSERT_TRUE(arena.ok());

  kernels::Backend& backend = *model->backend;
  const model::ModelConfig& config = model->config;
  const kernels::HeadShape heads{config.num_heads, config.num_kv_heads, config.head_dim};
  const model::LayerWeights& layer = model->weights.layers[0];
  const auto x = backend.NewActivation(kRows, config.width);
  const auto normed = backend.NewActivation(kRows, config.width);
  const auto qkv = backend.NewActivation(kRows, heads.qkv_cols());
  const auto attended = backend.NewActivation(kRows, config.QueryWidth());
  std::vector<TokenId> tokens(kRows);
  std::iota(tokens.begin(), tokens.end(), 0);
  for (TokenId& token : tokens) token %= static_cast<TokenId>(config.vocab_size);
  std::vector<kv::BlockId> table(kRows / 16 + 1);
  std::iota(table.rbegin(), table.rend(), 0);
  kernels::Batch batch;
  batch.rows = kRows;
  batch.sequences.push_back({0, kRows, 0, {table}});
  const kernels::LayerCall call{heads, 0, batch, (*arena)->view()};
  backend.Embed(*model->weights.embedding, tokens, *x);
  backend.Norm(*x, {*layer.attn_norm, 1e-5f, *layer.qkv}, *normed);
  backend.QkvLinear(*layer.qkv, *normed, *model->rope, call, *qkv);
  backend.Attention(call, *qkv, *layer.attn_output, *attended);

  const size_t width = config.QueryWidth();
  std::vector<float> queries(kRows * width), out(kRows * width);
  for (uint32_t row = 0; row < kRows; ++row) {
    const std::vector<double> values = backend.Read(*qkv, row);
    std::copy_n(values.begin(), width, queries.begin() + static_cast<ptrdiff_t>(row * width));
  }
  MaterialisedAttention materialised(heads, (*arena)->view(), kernels::cpu::BestTier(), kRows);
  materialised.Run(0, table, kRows, queries.data(), out.data());
  for (uint32_t row = 0; row < kRows; ++row) {
    const std::vector<double> expected = backend.Read(*attended, row);
    for (size_t i = 0; i < width; ++i) {
      ASSERT_NEAR(out[row * width + i], expected[i], 1e-4) << row << ", " << i;
    }
  }
}

}  // namespace
}  // namespace baton::benchmarks
