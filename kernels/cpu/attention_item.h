// What a thread claims of attention.
#ifndef BATON_KERNELS_CPU_ATTENTION_ITEM_H_
#define BATON_KERNELS_CPU_ATTENTION_ITEM_H_

#include <cstdint>

#include "kernels/backend.h"

namespace baton::kernels::cpu {

inline constexpr uint32_t kMaxHeadDim = 256;

// `queries` query vectors for each of the KV heads [kv_head, kv_head + kv_heads) of one sequence,
// over the softmax segments [first_segment, end_segment). Query q of a KV head is head q % group of
// row q / group. All KV heads of a block lie together, so decode rows take as many as they can.
struct AttentionItem {
  uint32_t vectors() const { return kv_heads * queries; }

  const SequenceRows* sequence = nullptr;
  uint32_t first_query = 0;
  uint32_t queries = 0;
  uint32_t kv_head = 0;
  uint32_t kv_heads = 1;
  uint32_t first_segment = 0;
  uint32_t end_segment = 0;
  // Whole rows of a prompt, one KV head, from segment 0 on: a PromptTile's, else an
  // AttentionTile's.
  bool prompt = false;
  // Where the state of a single segment waits to be merged; null: the item finishes by itself.
  float* partial = nullptr;
  uint32_t whole = 0;  // with a partial: the item of all segments
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_ATTENTION_ITEM_H_
