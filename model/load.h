// From a path to a model that is ready to run: the one call a worker makes.
#ifndef BATON_MODEL_LOAD_H_
#define BATON_MODEL_LOAD_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "gguf/gguf_reader.h"
#include "kernels/backend.h"
#include "kv/layout.h"
#include "model/config.h"
#include "model/weights.h"

namespace baton::model {

struct LoadOptions {
  std::string path;
  std::string backend = "cpu";  // "cpu", "cpu-TIER" (tiers.h; the same bits) or "reference"
  // Of the KV cache: "auto"; "f16" or "int8" (cpu); "f64" (reference). int8 is another arithmetic.
  std::string kv_type = "auto";
  uint32_t threads = 1;      // 1..256; no effect on results
  uint32_t block_size = 16;  // slots of a KV block
  uint32_t context = 0;      // lowers the model's own context length; 0: as the file says
  PackProgress progress = {};
};

// Where the time of Load went.
struct LoadSeconds {
  double open = 0;    // the file mapped, its keys and directory checked
  double hash = 0;    // of the weights
  double pack = 0;    // weights into the backend's form
  double tables = 0;  // cos and sin of every position
};

// Movable, immutable after Load except for what the backend does inside its operations. Members
// are declared in the order in which they depend on each other.
struct LoadedModel {
  std::unique_ptr<GgufReader> file;  // keys and vocabulary stay readable
  ModelConfig config;                // context_length already lowered
  std::unique_ptr<kernels::Backend> backend;
  ModelWeights weights;
  std::unique_ptr<kernels::RopeTable> rope;
  kv::KvLayout layout;
  Digest weights_hash;
  Digest numerics_id;
  LoadSeconds seconds;
};

// Blocks for as long as packing takes. NOT_FOUND: no such file. INVALID_ARGUMENT: not a valid
// model, or a bad option. UNIMPLEMENTED: a valid model that Baton cannot run. UNAVAILABLE: the
// processor lacks what the tier needs. Errors name the file and the key, tensor or option.
absl::StatusOr<LoadedModel> Load(const LoadOptions& options);

}  // namespace baton::model

#endif  // BATON_MODEL_LOAD_H_
