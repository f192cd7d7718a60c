// One claim's worth of attention: a few query vectors over the keys and values of one KV head.
#ifndef BATON_KERNELS_CPU_ATTENTION_TILE_H_
#define BATON_KERNELS_CPU_ATTENTION_TILE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

inline constexpr uint32_t kMaxQueries = 12;  // two register tiles of six
inline constexpr uint32_t kMaxHeadDim = 256;

// Query vectors that read one KV head of one sequence, over the softmax segments [first_segment,
// end_segment). Query q of a KV head is head q % group of row q / group.
struct AttentionItem {
  const SequenceRows* sequence = nullptr;
  uint32_t first_query = 0;
  uint32_t queries = 0;  // at most kMaxQueries
  uint32_t kv_head = 0;
  uint32_t first_segment = 0;
  uint32_t end_segment = 0;
  // Where the state of a single segment waits to be merged; null: the item finishes by itself.
  float* partial = nullptr;
  uint32_t whole = 0;  // with a partial: the item of all segments
};

// Scores, softmax and weighted values of one segment after another. Blocks are read where they lie.
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
  uint32_t RowInSequence(uint32_t q) const { return (item_.first_query + q) / group_; }
  uint32_t RowOf(uint32_t q) const { return item_.sequence->first_row + RowInSequence(q); }
  uint32_t HeadOf(uint32_t q) const {
    return item_.kv_head * group_ + (item_.first_query + q) % group_;
  }
  uint32_t KeysIn(uint32_t segment, uint32_t q) const;
  const std::byte* Piece(uint32_t arena, uint32_t key) const {
    return call_.kv.Piece(call_.layer, arena, table_[key / block_size_]);
  }

  // Stored: uint16_t for halves, int8_t for bytes with a scale per slot.
  template <typename Stored>
  void RunSegments();
  template <typename Stored>
  void Scores(uint32_t segment);
  template <typename Stored>
  void Values(uint32_t segment);

  // Adds keys [begin, end) of the segment to queries [first, last).
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
  void AddRun(const ValueRange& range);
  template <typename Stored>
  const Stored* KeyPanel(uint32_t key) const;
  template <typename Stored>
  const Stored* ValueRow(uint32_t key) const;
  template <typename Stored>
  void PrefetchKeys(uint32_t key) const;
  template <typename Stored>
  void PrefetchValues(uint32_t key) const;

  // Multiplies every query's numbers of a segment by the scales of what it sees.
  void Scale(uint32_t segment, uint32_t arena);
  void Join(uint32_t q, bool is_first);

  const Tier& tier_;
  const LayerCall& call_;
  const AttentionItem& item_;
  const uint32_t dim_;
  const uint32_t group_;
  const uint32_t block_size_;
  const std::span<const kv::BlockId> table_;
  const uint32_t keys_;  // that the last query sees
  const bool streams_;   // nobody else reads these keys and values: they come from memory
  const kv::KvArenaSpec& spec_;
  SoftmaxState state_[kMaxQueries];
  SoftmaxState segment_state_[kMaxQueries];
  alignas(64) float query_[kMaxQueries * kMaxHeadDim];
  alignas(64) float scores_[kMaxQueries * kSegment];
  alignas(64) float segment_value_[kMaxQueries * kMaxHeadDim];
  alignas(64) float value_[kMaxQueries * kMaxHeadDim];
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_ATTENTION_TILE_H_
