// The forward pass of a llama model over a Backend: which operations, in which order, on which
// weights. How a number is held and computed is the backend's affair.
#ifndef BATON_MODEL_TRANSFORMER_H_
#define BATON_MODEL_TRANSFORMER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "common/decoder_state.h"
#include "kernels/backend.h"
#include "kv/layout.h"
#include "model/config.h"
#include "model/weights.h"

namespace baton::model {

// Not thread-safe; one thread at a time runs it, the one that uses the backend. Everything passed
// to the constructor must outlive it.
class Transformer {
 public:
  struct Limits {
    uint32_t max_rows = 64;    // of one Forward
    uint32_t max_logits = 64;  // rows of one Logits
  };

  Transformer(const ModelConfig& config, const ModelWeights& weights,
              const kernels::RopeTable& rope, kernels::Backend& backend, const Limits& limits);

  // Called when keys and values of a layer are in the blocks, for every row, in order of layers.
  using LayerStored = std::function<void(uint32_t layer)>;

  // Runs batch.rows tokens (1..max_rows, ids within the vocabulary, positions within the context).
  // Leaves the residual stream after the last layer in residual().
  void Forward(std::span<const TokenId> tokens, const kernels::Batch& batch, const kv::KvView& kv,
               const LayerStored& layer_stored);

  // The logits [rows.size(), vocab] of these rows (1..max_logits) of the last Forward. Valid until
  // the next call.
  const kernels::Activation& Logits(std::span<const uint32_t> rows);

  // [rows, width]: what the layers add to. Inside `layer_stored` it is what entered that layer.
  const kernels::Activation& residual() const { return *x_; }
  const Limits& limits() const { return limits_; }

 private:
  kernels::NormCall AttentionNorm(uint32_t layer) const;
  void Attend(const kernels::LayerCall& call, const LayerStored& layer_stored);
  void FeedForward(uint32_t layer);

  const ModelConfig& config_;
  const ModelWeights& weights_;
  const kernels::RopeTable& rope_;
  kernels::Backend& backend_;
  const Limits limits_;
  const kernels::HeadShape heads_;
  const float epsilon_;

  using Buffer = std::unique_ptr<kernels::Activation>;
  const Buffer x_;            // [rows, width] residual stream
  const Buffer normed_;       // [rows, width] what the next linear reads
  const Buffer qkv_;          // [rows, (heads + 2 * kv_heads) * head_dim]
  const Buffer attended_;     // [rows, heads * head_dim]
  const Buffer gated_;        // [rows, feed_forward]
  const Buffer last_;         // [logit rows, width]
  const Buffer last_normed_;  // [logit rows, width]
  const Buffer logits_;       // [logit rows, vocab]
};

}  // namespace baton::model

#endif  // BATON_MODEL_TRANSFORMER_H_
