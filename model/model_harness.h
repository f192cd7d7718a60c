// Runs chosen tokens through a loaded model and shows what comes out: for tests and measurements of
// the model alone, without engine or sampler.
#ifndef BATON_MODEL_MODEL_HARNESS_H_
#define BATON_MODEL_MODEL_HARNESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "kv/arena.h"
#include "model/load.h"
#include "model/transformer.h"

namespace baton::model {

// Not thread-safe.
class ModelHarness {
 public:
  struct Options {
    LoadOptions load;
    uint32_t max_rows = 64;  // of one Run
    uint32_t sequences = 1;
    uint32_t positions = 256;  // room of each sequence
  };

  // The next tokens of a sequence; they follow what it was given before.
  struct Chunk {
    uint32_t sequence = 0;
    std::vector<TokenId> tokens;
  };

  static absl::StatusOr<std::unique_ptr<ModelHarness>> Create(const Options& options);
  // One sequence with room for load.context positions, which must not be 0; `chunk` rows in a Run.
  static absl::StatusOr<std::unique_ptr<ModelHarness>> CreateForOneSequence(const LoadOptions& load,
                                                                            uint32_t chunk);

  // Empties every sequence and zeroes its blocks.
  void Restart();

  // One forward pass: the rows are the chunks' tokens in order.
  void Run(const std::vector<Chunk>& chunks, const Transformer::LayerStored& layer_stored = {});
  // Feeds `tokens` to sequence 0 in passes of `chunk` rows and shows the logits of every row from
  // `first` on, in order.
  using ShowLogits = std::function<void(std::vector<double> logits)>;
  void RunAll(const std::vector<TokenId>& tokens, uint32_t chunk, uint32_t first,
              const ShowLogits& show);

  // Of these rows of the last Run, in order.
  void Logits(const std::vector<uint32_t>& rows, const ShowLogits& show);
  // Of the last Run; inside `layer_stored`: what entered that layer.
  std::vector<double> Residual(uint32_t row);

  // Every piece of every block of the sequence, in a fixed order: equal strings, equal KV cache.
  std::string KvBytes(uint32_t sequence) const;

  LoadedModel& model() { return model_; }

 private:
  ModelHarness(const Options& options, LoadedModel model);
  absl::Status Allocate();

  const Options options_;
  LoadedModel model_;
  std::unique_ptr<kv::KvArena> arena_;
  std::vector<std::vector<kv::BlockId>> tables_;  // [sequence]
  std::vector<uint32_t> lengths_;                 // [sequence]
  std::unique_ptr<Transformer> transformer_;
};

}  // namespace baton::model

#endif  // BATON_MODEL_MODEL_HARNESS_H_
