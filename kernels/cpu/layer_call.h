#ifndef BATON_KERNELS_CPU_LAYER_CALL_H_
#define BATON_KERNELS_CPU_LAYER_CALL_H_

#include <cstdint>

#include "kernels/backend.h"

namespace baton::kernels::cpu {

// What the operations on KV blocks are told: one layer of one batch. Refers to the caller's
// objects.
struct LayerCall {
  const HeadShape& shape;
  uint32_t layer;
  const Batch& batch;
  const kv::KvView& kv;
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_LAYER_CALL_H_
