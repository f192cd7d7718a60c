// The operations that have one version per instruction set. Every tier gives the same bits
// (docs/numerics.md). Plain types only: the files that implement a tier are compiled for their
// instruction set and must not instantiate inline functions of the standard library, which the
// linker might then give to everyone.
#ifndef BATON_KERNELS_CPU_TIER_H_
#define BATON_KERNELS_CPU_TIER_H_

#include <stddef.h>
#include <stdint.h>

namespace baton::kernels::cpu {

inline constexpr uint32_t kPanel = 16;     // outputs of one packed panel
inline constexpr uint32_t kBlock = 32;     // inputs that share a scale
inline constexpr uint32_t kSegment = 256;  // keys of one softmax segment

// bfloat16 bits; a type of its own, so that no kernel takes them for halves.
enum class BFloat16 : uint16_t {};

// Activations quantised to int8 or int16 in blocks of 32: row r, block b has values
// q[r * q_stride + 32 b ...], scale[r * scale_stride + b], and for int8 scaled_sum = scale * sum
// of q, and centre = -8 * sum of q: added to a dot product with nibbles it makes them -8..7.
template <typename Q>
struct QuantizedRows {
  const Q* q = nullptr;
  size_t q_stride = 0;
  const float* scale = nullptr;
  const float* scaled_sum = nullptr;
  const int32_t* centre = nullptr;
  size_t scale_stride = 0;
};

// out[r * out_stride + n] = sum over k of panel[k][n] * row r, for n = 0..15; with `add`, the sum
// is added to what is there.
template <typename Q>
struct QuantizedPanel {
  const uint8_t* panel = nullptr;  // packed.h
  uint32_t blocks = 0;
  QuantizedRows<Q> in;
  uint32_t rows = 0;
  float* out = nullptr;
  size_t out_stride = 0;
  bool add = false;
};

// What happens to the sum of a DensePanel.
enum class DenseStore : uint8_t {
  kReplace,   // out = sum
  kContinue,  // the sum began with what is in out
  kAdd,       // out = out + sum
};

// The sum over k of a[r][k] * b[k][n] for n < cols, ascending k, one accumulator each. Columns 16 p
// to 16 p + 15 form panel p; its k rows lie in the runs that begin at runs[p * panel_runs], of
// `run` rows with stride b_stride each. `k` need not fill the last run.
template <typename B>
struct DensePanel {
  const float* a = nullptr;
  size_t a_stride = 0;
  const B* const* runs = nullptr;
  uint32_t run = 0;
  size_t b_stride = 0;
  uint32_t rows = 0;
  uint32_t k = 0;
  uint32_t cols = kPanel;
  float* out = nullptr;
  size_t out_stride = 0;
  DenseStore store = DenseStore::kReplace;
  size_t panel_runs = 0;  // 0: one panel, of a packed weight
  // Runs at like places that will be wanted next: each step asks memory for its row of them. Null:
  // none.
  const B* const* ahead = nullptr;
};

template <typename Q>
struct QuantizeRows {
  const float* x = nullptr;
  size_t x_stride = 0;
  uint32_t rows = 0;
  uint32_t blocks = 0;
  Q* q = nullptr;
  size_t q_stride = 0;
  float* scale = nullptr;
  float* scaled_sum = nullptr;  // this and `centre` are written where they are not nullptr
  int32_t* centre = nullptr;
  size_t scale_stride = 0;
};

// Sixteen columns of a KV cache as floats: to[16 r + i] = from[r * stride + i].
template <typename B>
struct WidenPanel {
  const B* from = nullptr;
  size_t stride = 0;
  uint32_t rows = 0;
  float* to = nullptr;
};

// Softmax state of one query over some keys: max of the scores, sum of exp(score - max), and
// sum of exp(score - max) * value.
struct SoftmaxState {
  float max;
  float sum;
};

struct Tier {
  const char* name;

  void (*linear_q4_0)(const QuantizedPanel<int8_t>&);
  void (*linear_q4_1)(const QuantizedPanel<int8_t>&);
  void (*linear_q8_0)(const QuantizedPanel<int16_t>&);
  void (*dense_half)(const DensePanel<uint16_t>&);
  void (*dense_bfloat16)(const DensePanel<BFloat16>&);
  void (*dense_float)(const DensePanel<float>&);
  void (*dense_int8)(const DensePanel<int8_t>&);

  // One row times two panels of weights of which the second follows the first in memory, as its
  // sums follow those of the first in `out`. nullptr in the scalar tier: a panel at a time.
  void (*pair_half)(const DensePanel<uint16_t>&);
  void (*pair_bfloat16)(const DensePanel<BFloat16>&);
  void (*pair_float)(const DensePanel<float>&);

  void (*quantize_int8)(const QuantizeRows<int8_t>&);
  void (*quantize_int16)(const QuantizeRows<int16_t>&);

  // out[i] = x[i] / sqrt(mean of squares + eps) * gain[i].
  void (*rms_norm)(const float* x, const float* gain, size_t n, float eps, float* out);
  // Turns pair (x, y) i by the angle of cos[i] and sin[i]: (x cos - y sin, x sin + y cos). Pairs
  // are neighbours, or the first `pairs` values with the next.
  void (*rotate_neighbours)(const float* cos, const float* sin, size_t pairs, float* head);
  void (*rotate_halves)(const float* cos, const float* sin, size_t pairs, float* head);
  // out[i] = silu(gate[i]) * up[i].
  void (*swiglu)(const float* gate, const float* up, size_t n, float* out);
  // nullptr: nothing is gained, dense_half or dense_int8 converts beside its multiplications.
  void (*widen_half)(const WidenPanel<uint16_t>&);
  void (*widen_int8)(const WidenPanel<int8_t>&);

  // Saturating.
  void (*to_half)(const float* x, size_t n, uint16_t* out);

  // scores[0..n) of one segment, scaled, become exp(score - max). n >= 1; scores has room for n
  // rounded up to 16.
  SoftmaxState (*softmax)(float* scores, uint32_t n, float scale);
  // Joins the state of the next segment to that of all before it; `values` has n numbers.
  void (*merge)(SoftmaxState* state, float* values, const SoftmaxState& next,
                const float* next_values, uint32_t n);
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_TIER_H_
