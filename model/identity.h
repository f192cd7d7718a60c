// What a model computes, as digests that two workers can compare.
#ifndef BATON_MODEL_IDENTITY_H_
#define BATON_MODEL_IDENTITY_H_

#include "common/ids.h"
#include "gguf/gguf_reader.h"
#include "kernels/backend.h"
#include "kv/layout.h"
#include "model/config.h"

namespace baton::model {

// Of everything that enters the arithmetic: configuration and tensors, not names or templates.
Digest WeightsHash(const GgufReader& file, const ModelConfig& config);

// Equal exactly when two workers turn equal tokens into equal bits: weights, arithmetic, dtype of
// the KV cache. Needed for handoff, recovery and prefix reuse.
Digest NumericsId(const Digest& weights_hash, const kernels::Backend& backend,
                  const kv::KvLayout& layout);

}  // namespace baton::model

#endif  // BATON_MODEL_IDENTITY_H_
