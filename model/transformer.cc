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
  backend_.Norm(*x_, AttentionNorm(0), *normed_);
  for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
    Attend({heads_, layer, batch, kv}, layer_stored);
    FeedForward(layer);
  }
}

kernels::NormCall Transformer::AttentionNorm(uint32_t layer) const {
  return {*weights_.layers[layer].attn_norm, epsilon_, *weights_.layers[layer].qkv};
}

// x += W_o attention(rope(q), rope(k), v), where q, k, v = W_qkv norm(x)
void Transformer::Attend(const kernels::LayerCall& call, const LayerStored& layer_stored) {
  const LayerWeights& w = weights_.layers[call.layer];
  backend_.QkvLinear(*w.qkv, *normed_, rope_, call, *qkv_);
  layer_stored(call.layer);
  backend_.Attention(call, *qkv_, *w.attn_output, *attended_);
  backend_.LinearAddNorm(*w.attn_output, *attended_, *x_, {*w.ffn_norm, epsilon_, *w.gate_up},
                         *normed_);
}

// x += W_down (silu(W_gate h) * W_up h), where h = norm(x)
void Transformer::FeedForward(uint32_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  backend_.GatedLinear(*w.gate_up, *normed_, *w.ffn_down, *gated_);
  if (layer + 1 == config_.num_layers) {
    backend_.LinearAdd(*w.ffn_down, *gated_, *x_);
  } else {
    backend_.LinearAddNorm(*w.ffn_down, *gated_, *x_, AttentionNorm(layer + 1), *normed_);
  }
}

const kernels::Activation& Transformer::Logits(std::span<const uint32_t> rows) {
  BATON_CHECK(!rows.empty() && rows.size() <= limits_.max_logits);
  backend_.Gather(*x_, rows, *last_);
  backend_.Norm(*last_, {*weights_.output_norm, epsilon_, weights_.head()}, *last_normed_);
  backend_.Linear(weights_.head(), *last_normed_, *logits_);
  return *logits_;
}

}  // namespace baton::model
