// Paged attention over the blocks of any mix of prefill chunks and decode rows.
#ifndef BATON_KERNELS_CPU_ATTENTION_H_
#define BATON_KERNELS_CPU_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/countdown.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

// Owner: the thread that runs the forward pass.
class Attention {
 public:
  Attention(const Tier& tier, ThreadPool& pool) : tier_(tier), pool_(pool) {}

  // out [rows, heads * head_dim], floats and the quantised forms that are set there, in one pass of
  // the threads: whoever finishes a row's last head quantises the row.
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
    uint32_t whole = 0;  // with a partial: the item of all segments
  };
  struct Pass {
    const LayerCall& call;
    const CpuActivation& qkv;
    CpuActivation& out;
  };
  class Tile;

  void ListItems(const LayerCall& call);
  // Gives each segment of each item an item of its own, so that few long sequences keep all
  // threads busy.
  void SplitItems(const LayerCall& call);
  bool ShouldSplit() const;
  void RunItem(const Item& item, const Pass& pass);
  void MergePartials(const Item& whole, const Pass& pass);
  void FinishRows(const Item& item, const Pass& pass);

  const Tier& tier_;
  ThreadPool& pool_;
  std::vector<Item> items_;
  std::vector<Item> whole_items_;  // before they were split
  std::vector<float> partials_;
  Countdowns segments_;  // [whole item]
  Countdowns heads_;     // [row]
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_ATTENTION_H_
