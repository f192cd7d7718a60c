// Paged attention over the blocks of any mix of prefill chunks and decode rows.
#ifndef BATON_KERNELS_CPU_ATTENTION_H_
#define BATON_KERNELS_CPU_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/layer_call.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

// Writes floats: out [rows, heads * head_dim]. Owner: the thread that runs the forward pass.
class Attention {
 public:
  Attention(const Tier& tier, ThreadPool& pool) : tier_(tier), pool_(pool) {}

  void Run(const LayerCall& call, const CpuActivation& qkv, CpuActivation& out);

 private:
  // Up to 12 query vectors that read one KV head of one sequence, over the softmax segments
  // [first_segment, end_segment). Query q of a KV head is head q % group of row q / group.
  struct Item {
    const SequenceRows* sequence = nullptr;
    uint32_t first_query = 0;
    uint32_t queries = 0;
    uint32_t kv_head = 0;
    uint32_t first_segment = 0;
    uint32_t end_segment = 0;
    // Where the state of a single segment waits to be merged; null: the item finishes by itself.
    float* partial = nullptr;
  };
  class Tile;

  void ListItems(const LayerCall& call);
  // Gives each segment of each item an item of its own, so that few long sequences keep all
  // threads busy.
  void SplitItems(const LayerCall& call);
  void MergePartials(const LayerCall& call, CpuActivation& out);

  const Tier& tier_;
  ThreadPool& pool_;
  std::vector<Item> items_;
  std::vector<Item> whole_items_;  // before they were split
  std::vector<float> partials_;
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_ATTENTION_H_
