// The shape of a model, read from GGUF keys and checked: whoever holds a ModelConfig may divide by
// and multiply its numbers without another look.
#ifndef BATON_MODEL_CONFIG_H_
#define BATON_MODEL_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "gguf/gguf_reader.h"

namespace baton::model {

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;          // general.name, or empty
  uint32_t num_layers = 0;
  uint32_t context_length = 0;
  uint32_t width = 0;         // of the residual stream
  uint32_t feed_forward = 0;  // width of the gated activation
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;  // divides num_heads
  uint32_t head_dim = 0;      // even
  uint32_t vocab_size = 0;
  double rope_base = 0;
  double norm_epsilon = 0;

  uint32_t QueryWidth() const { return num_heads * head_dim; }
  uint32_t KvWidth() const { return num_kv_heads * head_dim; }
};

// UNIMPLEMENTED: another architecture, or a feature of llama that Baton does not compute (both
// named). INVALID_ARGUMENT or NOT_FOUND: a key is missing, zero or out of range (named).
absl::StatusOr<ModelConfig> ReadModelConfig(const GgufReader& file);

}  // namespace baton::model

#endif  // BATON_MODEL_CONFIG_H_
