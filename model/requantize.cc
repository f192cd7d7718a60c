// Writes a GGUF file's model in another format: requantize --in=a.gguf --out=b.gguf --type=Q4_0
// [--embedding_type=Q8_0]. For measuring formats side by side; what the file lost before stays
// lost.
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "common/status_macros.h"
#include "gguf/gguf_reader.h"
#include "gguf/gguf_writer.h"
#include "kernels/raw_tensor.h"
#include "model/quantize.h"

ABSL_FLAG(std::string, in, "", "file to read");
ABSL_FLAG(std::string, out, "", "file to write");
ABSL_FLAG(std::string, type, "", "of the matrices: F32, F16, BF16, Q4_0, Q4_1 or Q8_0");
ABSL_FLAG(std::string, embedding_type, "Q8_0", "of the embedding and a separate head");

namespace baton::model {
namespace {

std::optional<GgufTensorType> TypeNamed(std::string_view name) {
  for (const GgufTensorType type : kQuantizeFormats) {
    if (TensorTypeTraits(static_cast<uint32_t>(type))->name == name) return type;
  }
  return std::nullopt;
}

// Vectors stay as they are.
GgufTensorType TypeOf(const GgufTensor& tensor, GgufTensorType matrices, GgufTensorType embedding) {
  if (tensor.rank < 2) return tensor.type;
  const bool ends = tensor.name == "token_embd.weight" || tensor.name == "output.weight";
  return ends ? embedding : matrices;
}

absl::StatusOr<std::string> Converted(const GgufTensor& tensor, GgufTensorType to) {
  if (tensor.type == to) {
    return std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  const auto from = static_cast<kernels::TensorType>(tensor.type);
  if (!kernels::InfoOf(from).has_value()) {
    return absl::UnimplementedError("cannot read the type of '" + std::string(tensor.name) + "'");
  }
  std::vector<float> values(tensor.dims[0] * tensor.Rows());
  kernels::Dequantize(from, tensor.bytes, values);
  return Quantize(values, to);
}

absl::Status Run() {
  const auto matrices = TypeNamed(absl::GetFlag(FLAGS_type));
  const auto embedding = TypeNamed(absl::GetFlag(FLAGS_embedding_type));
  if (!matrices.has_value() || !embedding.has_value()) {
    return absl::InvalidArgumentError("types are F32, F16, BF16, Q4_0, Q4_1, Q8_0");
  }
  BATON_ASSIGN_OR_RETURN(const auto file, GgufReader::Open(absl::GetFlag(FLAGS_in)));
  GgufWriter writer;
  writer.CopyKeys(*file);
  for (const GgufTensor& tensor : file->tensors()) {
    const GgufTensorType to = TypeOf(tensor, *matrices, *embedding);
    BATON_ASSIGN_OR_RETURN(std::string data, Converted(tensor, to));
    writer.AddTensor(tensor.name, to, {tensor.dims.begin(), tensor.dims.begin() + tensor.rank},
                     std::move(data));
  }
  return writer.WriteFile(absl::GetFlag(FLAGS_out));
}

}  // namespace
}  // namespace baton::model

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = baton::model::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
