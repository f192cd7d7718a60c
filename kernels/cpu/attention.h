// Paged attention over the blocks of any mix of prefill chunks and decode rows.
#ifndef BATON_KERNELS_CPU_ATTENTION_H_
#define BATON_KERNELS_CPU_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/countdown.h"
#include "kernels/cpu/prompt_tile.h"
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
  struct Pass {
    const LayerCall& call;
    const CpuActivation& qkv;
    CpuActivation& out;
  };
  // Enough items to keep all threads busy: a few sequences are taken head by head, or segment by
  // segment.
  void PlanItems(const LayerCall& call);
  // As many KV heads to an item as make `max_vectors`, or one; of prompts items of
  // `prompt_vectors`, unless that is 0.
  void ListItems(const LayerCall& call, uint32_t max_vectors, uint32_t prompt_vectors);
  void ListPrompt(const SequenceRows& sequence, const LayerCall& call, uint32_t vectors);
  uint32_t PromptVectors(const LayerCall& call) const;
  // Gives each segment of each item an item of its own.
  void SplitItems(const LayerCall& call);
  size_t Segments() const;
  void RunItem(const AttentionItem& item, const Pass& pass);
  void MergePartials(const AttentionItem& whole, const Pass& pass);
  void FinishRows(const AttentionItem& item, const Pass& pass);

  const Tier& tier_;
  ThreadPool& pool_;
  std::vector<AttentionItem> items_;
  std::vector<AttentionItem> whole_items_;  // before they were split
  std::vector<float> partials_;
  Countdowns segments_;  // [whole item]
  Countdowns heads_;     // [row]
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_ATTENTION_H_
