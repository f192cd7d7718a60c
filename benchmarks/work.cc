#include "benchmarks/work.h"

#include <string_view>

namespace baton::benchmarks {
namespace {

constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kHead = "output.weight";

std::string TypeName(const GgufTensor& tensor) {
  return std::string(TensorTypeTraits(static_cast<uint32_t>(tensor.type))->name);
}

void AddMacs(const std::map<std::string, uint64_t>& per_row, uint64_t rows, Work& work) {
  for (const auto& [type, macs] : per_row) work.macs[type] += macs * rows;
}

}  // namespace

WorkModel::WorkModel(const GgufReader& file, const model::ModelConfig& config,
                     uint64_t kv_position_bytes)
    : macs_per_key_(uint64_t{2} * config.num_layers * config.QueryWidth()),
      kv_position_bytes_(kv_position_bytes) {
  // A tied embedding is the head; otherwise a step reads single rows of it, which is nothing.
  const bool tied = file.FindTensor(kHead) == nullptr;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.rank < 2 || (tensor.name == kEmbedding && !tied)) continue;
    const bool head = tensor.name == kHead || tensor.name == kEmbedding;
    Tensors& tensors = head ? head_ : layers_;
    tensors.macs[TypeName(tensor)] += tensor.dims[0] * tensor.Rows();
    tensors.bytes += tensor.bytes.size();
  }
}

void WorkModel::Add(const Rows& rows, Work& work) const {
  AddMacs(layers_.macs, rows.rows, work);
  AddMacs(head_.macs, rows.logit_rows, work);
  const uint64_t keys = rows.rows * rows.first_position + rows.rows * (rows.rows + 1) / 2;
  work.macs[kAttentionMacs] += keys * macs_per_key_;
  if (rows.decode) work.bytes += keys * kv_position_bytes_;
}

void WorkModel::AddSteps(uint64_t steps, uint64_t sampling_steps, Work& work) const {
  work.bytes += steps * layers_.bytes + sampling_steps * head_.bytes;
}

}  // namespace baton::benchmarks
