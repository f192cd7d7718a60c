// Writes a tiny random model: make_tiny_model --out=tiny.gguf [--layers=2] [--type=Q4_1] ...
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "model/quantize.h"
#include "model/tiny_model.h"

ABSL_FLAG(std::string, out, "", "file to write");
ABSL_FLAG(uint32_t, layers, 2, "number of layers");
ABSL_FLAG(uint32_t, context, 512, "context length");
ABSL_FLAG(uint32_t, width, 64, "of the embedding");
ABSL_FLAG(uint32_t, heads, 4, "query heads");
ABSL_FLAG(uint32_t, kv_heads, 2, "key and value heads");
ABSL_FLAG(std::string, type, "Q4_1",
          "tensor type of the matrices: F32, F16, BF16, Q4_0, Q4_1 or Q8_0");
ABSL_FLAG(std::string, embedding_type, "Q8_0", "tensor type of embedding and head");
ABSL_FLAG(bool, tied_head, true, "whether the head is the embedding");
ABSL_FLAG(uint64_t, seed, 1, "seed of the weights");

namespace {

std::optional<baton::GgufTensorType> TypeNamed(std::string_view name) {
  for (const baton::GgufTensorType type : baton::model::kQuantizeFormats) {
    if (baton::TensorTypeTraits(static_cast<uint32_t>(type))->name == name) return type;
  }
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const auto matrices = TypeNamed(absl::GetFlag(FLAGS_type));
  const auto embedding = TypeNamed(absl::GetFlag(FLAGS_embedding_type));
  if (!matrices.has_value() || !embedding.has_value() || absl::GetFlag(FLAGS_out).empty()) {
    std::fprintf(stderr, "needs --out=FILE; types are F32, F16, BF16, Q4_0, Q4_1, Q8_0\n");
    return 2;
  }
  baton::model::TinyModelOptions options;
  options.layers = absl::GetFlag(FLAGS_layers);
  options.context = absl::GetFlag(FLAGS_context);
  options.width = absl::GetFlag(FLAGS_width);
  options.heads = absl::GetFlag(FLAGS_heads);
  options.kv_heads = absl::GetFlag(FLAGS_kv_heads);
  options.matrices = *matrices;
  options.embedding = *embedding;
  options.tied_head = absl::GetFlag(FLAGS_tied_head);
  options.seed = absl::GetFlag(FLAGS_seed);
  const absl::Status status = baton::model::WriteTinyModel(options, absl::GetFlag(FLAGS_out));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
