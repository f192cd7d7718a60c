// A model's weights, checked against its configuration and packed for one backend.
#ifndef BATON_MODEL_WEIGHTS_H_
#define BATON_MODEL_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "gguf/gguf_reader.h"
#include "kernels/backend.h"
#include "model/config.h"

namespace baton::model {

using Weight = std::unique_ptr<kernels::PackedWeight>;

struct LayerWeights {
  Weight attn_norm;
  Weight qkv;  // q, k and v side by side: one product
  Weight attn_output;
  Weight ffn_norm;
  Weight gate_up;
  Weight ffn_down;
};

// Must not outlive the backend that packed it.
struct ModelWeights {
  Weight embedding;  // [vocab, width]
  std::vector<LayerWeights> layers;
  Weight output_norm;
  Weight separate_head;  // nullptr: the head is the embedding

  const kernels::PackedWeight& head() const {
    return separate_head != nullptr ? *separate_head : *embedding;
  }
};

// Told, on the thread that packs, how many bytes of the file's tensors are packed: after each
// layer, and at the end with packed == all.
using PackProgress = std::function<void(uint64_t packed_bytes, uint64_t all_bytes)>;

// `progress` may be empty. INVALID_ARGUMENT: a tensor is missing or has another shape than the
// configuration says. UNIMPLEMENTED: a tensor's type is not supported, or the file has a tensor
// that this architecture does not use (its answer would be silently wrong without it). Errors name
// the tensor.
absl::StatusOr<ModelWeights> PackWeights(const GgufReader& file, const ModelConfig& config,
                                         kernels::Backend& backend, const PackProgress& progress);

}  // namespace baton::model

#endif  // BATON_MODEL_WEIGHTS_H_
