// Tiny random llama models for tests: real GGUF files, small enough to run thousands of requests.
// The same options give the same bytes on every machine.
#ifndef BATON_MODEL_TINY_MODEL_H_
#define BATON_MODEL_TINY_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "gguf/gguf_types.h"
#include "gguf/gguf_writer.h"

namespace baton::model {

struct TinyModelOptions {
  uint32_t layers = 2;
  uint32_t width = 64;  // multiple of 32 and of heads; width / heads even
  uint32_t heads = 4;
  uint32_t kv_heads = 2;        // divides heads
  uint32_t feed_forward = 128;  // multiple of 32
  uint32_t context = 512;
  // One of kQuantizeFormats (model/quantize.h): of every matrix but the embedding and the head.
  // Norms are F32.
  GgufTensorType matrices = GgufTensorType::kQ4_1;
  GgufTensorType embedding = GgufTensorType::kQ8_0;  // and of a separate head
  bool tied_head = true;
  uint64_t seed = 1;
};

// Keys, vocabulary (model/tiny_vocab.h) and tensors. Greedy choices have wide gaps and depend on
// the whole prompt.
GgufWriter TinyModel(const TinyModelOptions& options);
absl::Status WriteTinyModel(const TinyModelOptions& options, const std::string& path);

}  // namespace baton::model

#endif  // BATON_MODEL_TINY_MODEL_H_
