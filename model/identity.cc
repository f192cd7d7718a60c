#include "model/identity.h"

#include <bit>
#include <string>

#include "common/hash.h"

namespace baton::model {
namespace {

// Numbers as decimal text with separators: no padding, no byte order.
void Append(std::string& out, uint64_t value) { out += std::to_string(value) + ";"; }

void Append(std::string& out, const Digest& digest) {
  Append(out, digest.hi);
  Append(out, digest.lo);
}

}  // namespace

Digest WeightsHash(const GgufReader& file, const ModelConfig& config) {
  std::string text = config.architecture + ";";
  for (const uint32_t number :
       {config.num_layers, config.width, config.feed_forward, config.num_heads, config.num_kv_heads,
        config.head_dim, config.vocab_size}) {
    Append(text, number);
  }
  Append(text, std::bit_cast<uint64_t>(config.rope_base));
  Append(text, std::bit_cast<uint64_t>(config.norm_epsilon));
  for (const GgufTensor& tensor : file.tensors()) {
    text += std::string(tensor.name) + ";";
    Append(text, static_cast<uint64_t>(tensor.type));
    for (const uint64_t dim : tensor.dims) Append(text, dim);
    Append(text, HashBytes(tensor.bytes));
  }
  return HashBytes(text);
}

Digest NumericsId(const Digest& weights_hash, const kernels::Backend& backend,
                  const kv::KvLayout& layout) {
  std::string text = backend.numerics() + ";";
  Append(text, weights_hash);
  for (const kv::KvLayerSpec& layer : layout.layers) {
    for (const kv::KvArenaSpec& arena : layer.arenas) {
      Append(text, static_cast<uint64_t>(arena.dtype));
    }
  }
  return HashBytes(text);
}

}  // namespace baton::model
