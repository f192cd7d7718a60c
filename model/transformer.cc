#include "model/transformer.h"

#include "common/check.h"

namespace baton::model {

Transformer::Transformer(const ModelConfig& config, const ModelWeights& weights,
                         const kernels::RopeTable& rope, kernels::Backend& backend,
                         const Limits& limits)
    : config_(config),
      weights_(weights),
      rope_(rope),
      backend_(backend),
      limits_(limits),
      heads_{config.num_heads, config.num_kv_heads, config.head_dim},
      epsilon_(static_cast<float>(config.norm_epsilon)),
      x_(backend.NewActivation(limits.max_rows, config.width)),
      normed_(backend.NewActivation(limits.max_rows, config.width)),
      qkv_(backend.NewActivation(limits.max_rows, heads_.qkv_cols())),
      attended_(backend.NewActivation(limits.max_rows, config.QueryWidth())),
      gated_(backend.NewActivation(limits.max_rows, config.feed_forward)),
      last_(backend.NewActivation(limits.max_logits, config.width)),
      last_normed_(backend.NewActivation(limits.max_logits, config.width)),
      logits_(backend.NewActivation(limits.max_logits, config.vocab_size)) {}

void Transformer::Forward(std::span<const TokenId> tokens, const kernels::Batch& batch,
                          const kv::KvView& kv, const LayerStored& layer_stored) {
  BATON_CHECK(tokens.size() == batch.rows && batch.rows >= 1 && batch.rows <= limits_.max_rows);
  backend_.Embed(*weights_.embedding, tokens, *x_);
  for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
    Attend(layer, {batch, kv}, layer_stored);
    FeedForward(weights_.layers[layer]);
  }
}

// x += W_o attention(rope(q), rope(k), v), where q, k, v = W_qkv norm(x)
void Transformer::Attend(uint32_t layer, const Rows& rows, const LayerStored& layer_stored) {
  const LayerWeights& w = weights_.layers[layer];
  backend_.Norm(*x_, *w.attn_norm, epsilon_, *w.qkv, *normed_);
  backend_.Linear(*w.qkv, *normed_, *qkv_);
  backend_.RopeAppend(rope_, heads_, layer, rows.batch, rows.kv, *qkv_);
  layer_stored(layer);
  backend_.Attention(heads_, layer, rows.batch, rows.kv, *qkv_, *w.attn_output, *attended_);
  backend_.LinearAdd(*w.attn_output, *attended_, *x_);
}

// x += W_down (silu(W_gate h) * W_up h), where h = norm(x)
void Transformer::FeedForward(const LayerWeights& w) {
  backend_.Norm(*x_, *w.ffn_norm, epsilon_, *w.gate_up, *normed_);
  backend_.GatedLinear(*w.gate_up, *normed_, *w.ffn_down, *gated_);
  backend_.LinearAdd(*w.ffn_down, *gated_, *x_);
}

const kernels::Activation& Transformer::Logits(std::span<const uint32_t> rows) {
  BATON_CHECK(!rows.empty() && rows.size() <= limits_.max_logits);
  backend_.Gather(*x_, rows, *last_);
  backend_.Norm(*last_, *weights_.output_norm, epsilon_, weights_.head(), *last_normed_);
  backend_.Linear(weights_.head(), *last_normed_, *logits_);
  return *logits_;
}

}  // namespace baton::model
