// What a run of sequences has to compute and to read at least, from the model's file alone: the
// numerator of every share of a ceiling. Arithmetic that a backend adds for precision is not work.
#ifndef BATON_BENCHMARKS_WORK_H_
#define BATON_BENCHMARKS_WORK_H_

#include <cstdint>
#include <map>
#include <string>

#include "gguf/gguf_reader.h"
#include "model/config.h"

namespace baton::benchmarks {

struct Work {
  // Multiply-accumulates of products with weights, by the tensors' type ("Q4_1"), and under
  // kAttentionMacs those of scores and weighted values.
  std::map<std::string, uint64_t> macs;
  uint64_t bytes = 0;  // of weights, once a step, and of the keys and values that decode rows read
};

inline constexpr char kAttentionMacs[] = "attention";

// Consecutive positions of one sequence. The row at position p attends to p + 1 keys.
struct Rows {
  uint64_t first_position = 0;
  uint64_t rows = 0;
  uint64_t logit_rows = 0;  // of which logits are computed
  bool decode = false;      // one row a step, so each reads its keys and values anew
};

class WorkModel {
 public:
  // Copies what it needs.
  WorkModel(const GgufReader& file, const model::ModelConfig& config, uint64_t kv_position_bytes);

  void Add(const Rows& rows, Work& work) const;
  // The weights that every step reads, and those of the head for steps that sample.
  void AddSteps(uint64_t steps, uint64_t sampling_steps, Work& work) const;

 private:
  struct Tensors {
    std::map<std::string, uint64_t> macs;  // of one row
    uint64_t bytes = 0;
  };

  Tensors layers_;
  Tensors head_;
  uint64_t macs_per_key_ = 0;  // of one row
  uint64_t kv_position_bytes_ = 0;
};

}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_WORK_H_
