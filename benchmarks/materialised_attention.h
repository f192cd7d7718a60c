// Attention as it is without an online softmax: the scores of a key head's queries as one matrix in
// memory, then softmax over whole rows, then the weighted values. With the same kernels, blocks and
// causal skipping as the backend's attention, on one thread. What FlashAttention replaces; only
// benchmarks have it.
#ifndef BATON_BENCHMARKS_MATERIALISED_ATTENTION_H_
#define BATON_BENCHMARKS_MATERIALISED_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/tier.h"
#include "kv/layout.h"

namespace baton::benchmarks {

// Not thread-safe.
class MaterialisedAttention {
 public:
  // For prompts of at most `max_rows`; blocks of 16 slots. `kv` and `tier` must outlive it.
  MaterialisedAttention(const kernels::HeadShape& heads, const kv::KvView& kv,
                        const kernels::cpu::Tier& tier, uint32_t max_rows);

  // queries and out: [rows][heads][head_dim]. Row i is at position i and sees keys 0..i, which lie
  // in the blocks of `table`.
  void Run(uint32_t layer, std::span<const kv::BlockId> table, uint32_t rows, const float* queries,
           float* out);

  size_t score_bytes() const { return scores_.size() * sizeof(float); }

 private:
  // Queries of one key head are ordered by row, then by head within its group.
  struct Tile {
    uint32_t first = 0;
    uint32_t count = 0;
  };

  void Gather(uint32_t kv_head, uint32_t rows, const float* queries);
  void Scores(uint32_t layer, uint32_t kv_head, std::span<const kv::BlockId> table, Tile tile);
  void Softmax(uint32_t queries);
  void Values(uint32_t layer, uint32_t kv_head, std::span<const kv::BlockId> table, Tile tile);
  void Scatter(uint32_t kv_head, uint32_t rows, float* out) const;
  uint32_t KeysOf(uint32_t query) const { return query / group_ + 1; }
  const uint16_t* Piece(uint32_t layer, uint32_t arena, kv::BlockId block) const;

  const kernels::HeadShape heads_;
  const uint32_t group_;
  const kv::KvView& kv_;
  const kernels::cpu::Tier& tier_;
  const size_t stride_;         // of a row of scores
  std::vector<float> queries_;  // of one key head
  std::vector<float> scores_;
  std::vector<float> sums_;
  std::vector<float> values_;
};

}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_MATERIALISED_ATTENTION_H_
