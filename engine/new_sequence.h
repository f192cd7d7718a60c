// What joins an engine, and whether it can be run.
#ifndef BATON_ENGINE_NEW_SEQUENCE_H_
#define BATON_ENGINE_NEW_SEQUENCE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/decoder_state.h"
#include "common/time.h"
#include "engine/sequence.h"
#include "kv/block_pool.h"
#include "kv/prefix_cache.h"
#include "kv/sliding_windows.h"
#include "text/vocab.h"

namespace baton::engine {

// A kGenerate sequence takes further blocks as it grows, and may give all of them up and compute
// them again (room_by_age.h).
struct NewSequence {
  // `choices` hold what was sampled elsewhere, if anything. `age` gives the order in which
  // sequences get room and a place in the batch; `remaining` is not looked at (see `deadline`).
  DecoderState state{};
  // PlacesNeeded(prompt, choices, max_tokens) in each group with at least 1 for max_tokens, in
  // practice kv::TokensAtFirst. For a kPrefillOnly one PlacesNeeded(prompt, 1, 1). Blocks are in
  // all of them, or as kv::SlidingWindows::Place puts them.
  kv::BlockLease lease{};
  // How much of the prompt is in the blocks already. 0: compute all of it. All of it, as at a sink:
  // each choice brings a token at least. A prompt whose log probabilities are still to be computed
  // reads nothing from the cache: 0.
  uint32_t filled = 0;
  // Where those blocks stand in the cache; what is filled and what will be is stored behind them.
  kv::CacheChain chain{};
  SequenceMode mode = SequenceMode::kGenerate;
  // The engine ends it with DEADLINE_EXCEEDED then. Absent: the owner calls Remove by itself.
  std::optional<Time> deadline = std::nullopt;
};

// Where it is to run.
struct SequenceLimits {
  const Vocab& vocab;
  uint32_t context_length = 0;
  uint32_t block_size = 0;
  std::vector<uint32_t> pool_blocks;  // of each group, empty
  const kv::SlidingWindows& windows;
};

// INVALID_ARGUMENT, naming the field: empty prompt, token out of range, longer than the context or
// than the empty pool, bad stop parameters, log probabilities that do not fit.
absl::Status CheckNewSequence(const NewSequence& sequence, const SequenceLimits& limits);

}  // namespace baton::engine

#endif  // BATON_ENGINE_NEW_SEQUENCE_H_
