// One claim's worth of attention: a few query vectors over the keys and values of their KV heads.
#ifndef BATON_KERNELS_CPU_ATTENTION_TILE_H_
#define BATON_KERNELS_CPU_ATTENTION_TILE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/attention_item.h"
#include "kernels/cpu/stored_kv.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

inline constexpr uint32_t kMaxVectors = 12;  // two register tiles of six

// Scores, softmax and weighted values of one segment after another, for at most kMaxVectors query
// vectors. Blocks are read where they lie.
// Large: lives on the stack of the thread that runs it.
class AttentionTile {
 public:
  AttentionTile(const Tier& tier, const LayerCall& call, const AttentionItem& item);

  void Run(const CpuActivation& qkv);
  // out[i] = values / sum, for every query.
  void Finish(CpuActivation& out) const;

  // The state after Run, and its merging into a tile of all segments, in order.
  static size_t PartialSize(uint32_t dim) { return size_t{2} + dim; }  // floats per query
  void SavePartial() const;
  void JoinPartial(const float* partial, uint32_t segment);

 private:
  // Vector v is query v % queries of KV head v / queries of the item.
  uint32_t RowInSequence(uint32_t v) const {
    return (item_.first_query + v % item_.queries) / group_;
  }
  uint32_t RowOf(uint32_t v) const { return item_.sequence->first_row + RowInSequence(v); }
  uint32_t HeadOf(uint32_t v) const {
    return (item_.kv_head + v / item_.queries) * group_ +
           (item_.first_query + v % item_.queries) % group_;
  }
  // How many keys of `segment` the vector sees: those up to its own position.
  uint32_t KeysIn(uint32_t segment, uint32_t v) const {
    const uint32_t before = segment * kSegment;
    return seen_[v] > before ? std::min(seen_[v] - before, kSegment) : 0;
  }

  // Stored: uint16_t for halves, int8_t for bytes with a scale per slot.
  template <typename Stored>
  void RunSegments();
  template <typename Stored>
  void Scores(uint32_t segment);
  template <typename Stored>
  void Values(uint32_t segment);

  // Keys [begin, end) of a segment, for queries [first, last) of every head.
  struct ValueRange {
    uint32_t segment;
    uint32_t first;
    uint32_t last;
    uint32_t begin;
    uint32_t end;
  };
  template <typename Stored>
  void AddValues(const ValueRange& range);
  template <typename Stored>
  void AddRun(const ValueRange& range, uint32_t head);
  template <typename Stored>
  void AddScores(uint32_t segment, uint32_t key, uint32_t head);
  // Where keys or values of one of the item's heads lie, from an absolute key on.
  template <typename Stored>
  const Stored* At(uint32_t arena, uint32_t key, uint32_t head) const {
    return kv_.At<Stored>(arena, key, item_.kv_head + head);
  }
  // The place that is read a run after this one.
  template <typename Stored>
  const Stored* Ahead(uint32_t arena, uint32_t key, uint32_t head) const;

  const float* ScalesAt(uint32_t arena, uint32_t key, uint32_t head) const {
    return kv_.ScalesAt(arena, key, item_.kv_head + head);
  }
  // Multiplies every vector's numbers of a segment by the scales of what it sees.
  void Scale(uint32_t segment, uint32_t arena);
  void ScalePanel(uint32_t segment, uint32_t key, const float* scales, uint32_t head);
  void Join(uint32_t v, bool is_first);

  const Tier& tier_;
  const AttentionItem& item_;
  const StoredKv kv_;
  const uint32_t dim_;
  const uint32_t group_;
  const uint32_t block_size_;
  uint32_t seen_[kMaxVectors];  // keys, of all segments
  SoftmaxState state_[kMaxVectors];
  SoftmaxState segment_state_[kMaxVectors];
  alignas(64) float query_[kMaxVectors * kMaxHeadDim];
  alignas(64) float scores_[kMaxVectors * kSegment];
  alignas(64) float segment_value_[kMaxVectors * kMaxHeadDim];
  alignas(64) float value_[kMaxVectors * kMaxHeadDim];
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_ATTENTION_TILE_H_
