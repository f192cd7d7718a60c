// One claim's worth of a prompt's attention: many query rows over the keys and values of one KV
// head, which become floats once for all of them.
#ifndef BATON_KERNELS_CPU_PROMPT_TILE_H_
#define BATON_KERNELS_CPU_PROMPT_TILE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/attention_item.h"
#include "kernels/cpu/stored_kv.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

// The bits of an AttentionTile for each row. Large: lives on the stack of the thread that runs it.
class PromptTile {
 public:
  // Query vectors of an item, at most; 0 where only an AttentionTile serves.
  static uint32_t MaxVectors(const Tier& tier, const LayerCall& call);

  // `item` has whole rows, at most MaxVectors, and one KV head.
  PromptTile(const Tier& tier, const LayerCall& call, const AttentionItem& item);

  // Writes the item's rows and heads of `out`.
  void Run(const CpuActivation& qkv, CpuActivation& out);

 private:
  // Scores take 50 KB then, queries and values 12 KB each: most of it stays in the first-level
  // cache beside a panel of keys or values. Twice as many vectors were slower (measured).
  static constexpr uint32_t kMaxVectors = 48;
  static constexpr uint32_t kMaxFloats = kMaxVectors * 128;
  // Of scores: rows a power of two apart would share a few sets of the first-level cache.
  static constexpr uint32_t kStride = kSegment + kPanel;

  // How many keys of `segment` a row of the item sees: those up to its own position.
  uint32_t KeysIn(uint32_t segment, uint32_t row) const {
    const uint32_t seen = first_position_ + row + 1;
    const uint32_t before = segment * kSegment;
    return seen > before ? std::min(seen - before, kSegment) : 0;
  }

  // Stored: uint16_t for halves, int8_t for bytes with a scale per slot.
  template <typename Stored>
  void RunSegments();
  // scores_ = exp(scaled score - max) for the keys that a row sees; other entries hold anything.
  // With bytes (`scaled`), times the scales of the values.
  void Scores(uint32_t segment, bool scaled);
  void AddScores(uint32_t segment, uint32_t key);
  void Scale(uint32_t segment, uint32_t arena);

  // The sum of score * value of rows [first, end) over keys of the segment.
  struct ValueRange {
    uint32_t first;
    uint32_t end;
    uint32_t begin_key;
    uint32_t end_key;
  };
  void Values(uint32_t segment);
  void AddValues(uint32_t segment, const ValueRange& range);
  void Join(uint32_t segment);

  const Tier& tier_;
  const StoredKv kv_;
  const uint32_t dim_;
  const uint32_t group_;  // vectors of a row
  const uint32_t kv_head_;
  const uint32_t rows_;
  const uint32_t first_row_;       // of the batch
  const uint32_t first_position_;  // of it
  const uint32_t end_segment_;
  SoftmaxState state_[kMaxVectors];  // after segment 0 its own, then of all so far
  SoftmaxState segment_state_[kMaxVectors];
  alignas(64) float query_[kMaxFloats];
  alignas(64) float value_[kMaxFloats];
  alignas(64) float segment_value_[kMaxFloats];
  alignas(64) float scores_[kMaxVectors * kStride];
  // Keys [panel of 16 keys][dim][16], then values [panel of 16 dims][key][16] of a segment.
  alignas(64) float wide_[kSegment * kMaxHeadDim];
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_PROMPT_TILE_H_
