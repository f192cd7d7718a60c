// Backend: the small set of fused operations in which a forward pass is written. What a number is
// (double, float, int8 with scales, device memory) is the backend's own affair: activations and
// packed weights are opaque. A backend promises that a row's result depends only on that row's
// tokens: not on the other rows of the batch, the chunking of its prompt, or the thread count.
//
// One llama layer, x being the residual stream and h its norm. Five operations, each one pass of
// the backend's threads; what stands in brackets is done to results that are still in cache:
//   QkvLinear(w_qkv, h, rope, call, qkv);               [rotation, KV append]
//   Attention(call, qkv, w_o, h_attn);                  [form that w_o reads]
//   LinearAddNorm(w_o, h_attn, x, ffn_norm, h);         [residual, norm, form that gate/up reads]
//   GatedLinear(w_gate_up, h, w_down, h_ffn);           [silu(gate) * up, form that w_down reads]
//   LinearAddNorm(w_down, h_ffn, x, next_attn_norm, h); [residual, norm of the next layer]
// Before the first layer: Embed(table, tokens, x); Norm(x, attn_norm, h). The last one ends with
// LinearAdd(w_down, h_ffn, x). The logits of selected rows: Gather(x, rows, y);
// Norm(y, out_norm, h); Linear(head, h, logits); Sample(...).
#ifndef BATON_KERNELS_BACKEND_H_
#define BATON_KERNELS_BACKEND_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "kernels/raw_tensor.h"
#include "kv/layout.h"
#include "sampling/token_request.h"

namespace baton::kernels {

// Weights in the backend's form. Immutable. Must not outlive the backend that made it; only that
// backend reads it. [outputs, inputs]: y[n] = sum over k of w[n][k] * x[k]. outputs() of a kGateUp
// weight is that of one of its parts.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  uint32_t outputs() const { return outputs_; }
  uint32_t inputs() const { return inputs_; }

 protected:
  PackedWeight(uint32_t outputs, uint32_t inputs) : outputs_(outputs), inputs_(inputs) {}

 private:
  const uint32_t outputs_;
  const uint32_t inputs_;
};

// A matrix of activations [rows, cols] with room for max_rows. `set_rows` says how many rows the
// operations that write it produce. Owner: the thread that runs the forward pass.
class Activation {
 public:
  virtual ~Activation() = default;
  uint32_t max_rows() const { return max_rows_; }
  uint32_t rows() const { return rows_; }
  uint32_t cols() const { return cols_; }
  void set_rows(uint32_t rows);  // 1..max_rows

 protected:
  Activation(uint32_t max_rows, uint32_t cols)
      : max_rows_(max_rows), rows_(max_rows), cols_(cols) {}

 private:
  const uint32_t max_rows_;
  uint32_t rows_;
  const uint32_t cols_;
};

// cos and sin of every position below the context length. Immutable.
class RopeTable {
 public:
  virtual ~RopeTable() = default;
};

struct RopeSpec {
  // llama GGUF files pair neighbours (2i, 2i+1); kHalves pairs (i, i + dims/2).
  enum class Pairing : uint8_t { kNeighbours, kHalves };
  Pairing pairing = Pairing::kNeighbours;
  uint32_t dims = 0;                // even, <= head_dim; later dimensions pass unrotated
  uint32_t context = 0;             // positions
  double base = 10000;              // angle(p, i) = p * base^(-2i/dims) / factor[i]
  std::vector<float> factors = {};  // dims/2, or empty: all 1
};

struct HeadShape {
  uint32_t heads = 0;     // query heads; a multiple of kv_heads
  uint32_t kv_heads = 0;  // query head h reads kv head h / (heads / kv_heads)
  uint32_t head_dim = 0;
  uint32_t qkv_cols() const { return (heads + 2 * kv_heads) * head_dim; }
};

// The rows of one sequence in a step: consecutive positions, consecutive rows. Entry i of a table
// covers positions [i * block_size, (i + 1) * block_size); tables reach at least to the last row's
// position. An entry that lies wholly before the window of its group may hold any value.
struct SequenceRows {
  uint32_t first_row = 0;
  uint32_t rows = 0;
  uint32_t first_position = 0;
  std::vector<std::span<const kv::BlockId>> tables;  // [group]
};

// Any mix of prefill chunks and decode rows; the sequences cover rows 0..rows-1 in order. Blocks
// written by different sequences of one batch are different blocks.
struct Batch {
  uint32_t rows = 0;
  std::vector<SequenceRows> sequences;
};

// What operations on KV blocks are told: one layer of one batch. Refers to the caller's objects.
struct LayerCall {
  const HeadShape& heads;
  uint32_t layer;
  const Batch& batch;
  const kv::KvView& kv;
};

// out = x / sqrt(mean(x^2) + eps) * gain, row by row, in the form that `consumer` reads.
struct NormCall {
  const PackedWeight& gain;
  float eps;
  const PackedWeight& consumer;
};

struct SampleRow {
  uint32_t row = 0;  // of the logits
  sampling::TokenRequest request{};
};

// How the tensors given to Pack become one weight.
enum class PartOrder : uint8_t {
  kConcatenated,  // outputs of part 0, then part 1, ...
  // The same for q, k, v. Attention amplifies what their common input loses, so a backend may hold
  // that input finer than its weights' format asks.
  kQueryKeyValue,
  kGateUp,  // exactly two of one shape: gate, up; for GatedLinear only
};

// Not thread-safe: one thread prepares and runs everything. Operations block until done and use
// the backend's own threads. Wrong shapes are broken invariants of the caller (BATON_CHECK): the
// model validates a file's shapes before it packs anything. Outputs never alias inputs unless an
// operation says so. Activation operands have equal rows() unless stated; the producer sets its
// output's rows itself.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;  // "reference", "cpu"
  // Names the arithmetic completely: equal strings, equal bits. Part of numerics_id.
  virtual std::string numerics() const = 0;
  virtual uint32_t threads() const = 0;

  // The layout this backend's attention reads. INVALID_ARGUMENT for an unsupported shape.
  virtual absl::StatusOr<kv::KvLayout> Layout(const kv::UniformKvShape& shape) const = 0;

  // `parts` are read during the call only. UNIMPLEMENTED names a tensor whose type is not
  // supported, INVALID_ARGUMENT one whose byte count or row length is wrong. The parts have equal
  // `cols`. A weight of one part serves Linear and Embed.
  virtual absl::StatusOr<std::unique_ptr<PackedWeight>> Pack(std::span<const RawTensor> parts,
                                                             PartOrder order) = 0;
  // A vector of gains: F32 or F16, rows = 1. outputs() = 1, inputs() = cols.
  virtual absl::StatusOr<std::unique_ptr<PackedWeight>> PackGain(const RawTensor& tensor) = 0;
  virtual absl::StatusOr<std::unique_ptr<RopeTable>> MakeRope(const RopeSpec& spec) = 0;
  virtual std::unique_ptr<Activation> NewActivation(uint32_t max_rows, uint32_t cols) = 0;

  // x[i] = row tokens[i] of the table. Ids are within the vocabulary.
  virtual void Embed(const PackedWeight& table, std::span<const TokenId> tokens, Activation& x) = 0;

  virtual void Norm(const Activation& x, const NormCall& norm, Activation& out) = 0;

  // out = w * in; `in` was made for `w`, or for a consumer of the same tensor type and inputs().
  virtual void Linear(const PackedWeight& w, const Activation& in, Activation& out) = 0;
  // x += w * in.
  virtual void LinearAdd(const PackedWeight& w, const Activation& in, Activation& x) = 0;
  // LinearAdd(w, in, x), then Norm(x, norm, out).
  virtual void LinearAddNorm(const PackedWeight& w, const Activation& in, Activation& x,
                             const NormCall& norm, Activation& out) = 0;
  // out = silu(gate * in) * (up * in), in the form that `consumer` reads; w is kGateUp.
  virtual void GatedLinear(const PackedWeight& w, const Activation& in,
                           const PackedWeight& consumer, Activation& out) = 0;

  // qkv [rows, qkv_cols()] = w * in: q heads, then k heads, then v heads. q comes out rotated; k,
  // rotated, and v of every row are stored in the blocks at the row's position.
  virtual void QkvLinear(const PackedWeight& w, const Activation& in, const RopeTable& rope,
                         const LayerCall& call, Activation& qkv) = 0;
  // out [rows, heads * head_dim], in the form that `consumer` reads: every row attends to the
  // positions up to its own (and within its group's window) as they lie in the blocks, with scale
  // 1 / sqrt(head_dim).
  virtual void Attention(const LayerCall& call, const Activation& qkv, const PackedWeight& consumer,
                         Activation& out) = 0;

  // out[i] = x[rows[i]].
  virtual void Gather(const Activation& x, std::span<const uint32_t> rows, Activation& out) = 0;

  // One entry per request: what sampling::ChooseToken makes of the row's values. Several requests
  // may name one row.
  virtual std::vector<absl::StatusOr<sampling::TokenResult>> Sample(
      const Activation& logits, std::span<const SampleRow> rows) = 0;

  // A row's values, as exactly as they are held. For tests: slow.
  virtual std::vector<double> Read(const Activation& activation, uint32_t row) const = 0;

  // All layers of `group`.
  virtual void ZeroBlock(const kv::KvView& kv, uint32_t group, kv::BlockId block) = 0;
  virtual void CopyBlock(const kv::KvView& kv, uint32_t group, kv::BlockId from,
                         kv::BlockId to) = 0;
};

}  // namespace baton::kernels

#endif  // BATON_KERNELS_BACKEND_H_
