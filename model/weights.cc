#include "model/weights.h"

#include <array>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/status_macros.h"

namespace baton::model {
namespace {

using kernels::PartOrder;
using kernels::RawTensor;

class Packer {
 public:
  Packer(const GgufReader& file, const ModelConfig& config, kernels::Backend& backend,
         const PackProgress& progress)
      : file_(file), config_(config), backend_(backend), progress_(progress) {
    for (const GgufTensor& tensor : file.tensors()) all_bytes_ += tensor.bytes.size();
  }

  absl::StatusOr<ModelWeights> Run() {
    ModelWeights weights;
    BATON_ASSIGN_OR_RETURN(weights.embedding,
                           Matrix("token_embd.weight", config_.vocab_size, config_.width));
    for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
      BATON_ASSIGN_OR_RETURN(LayerWeights packed, Layer(layer));
      weights.layers.push_back(std::move(packed));
      EndLayer();
    }
    BATON_ASSIGN_OR_RETURN(weights.output_norm, Gain("output_norm.weight"));
    if (file_.FindTensor("output.weight") != nullptr) {
      BATON_ASSIGN_OR_RETURN(weights.separate_head,
                             Matrix("output.weight", config_.vocab_size, config_.width));
    }
    BATON_RETURN_IF_ERROR(CheckAllUsed());
    EndLayer();
    return weights;
  }

 private:
  absl::StatusOr<LayerWeights> Layer(uint32_t layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const uint32_t width = config_.width;
    LayerWeights packed;
    BATON_ASSIGN_OR_RETURN(packed.attn_norm, Gain(prefix + "attn_norm.weight"));
    BATON_ASSIGN_OR_RETURN(packed.qkv, QueryKeyValue(prefix));
    BATON_ASSIGN_OR_RETURN(packed.attn_output,
                           Matrix(prefix + "attn_output.weight", width, config_.QueryWidth()));
    BATON_ASSIGN_OR_RETURN(packed.ffn_norm, Gain(prefix + "ffn_norm.weight"));
    BATON_ASSIGN_OR_RETURN(packed.gate_up, GateUp(prefix));
    BATON_ASSIGN_OR_RETURN(packed.ffn_down,
                           Matrix(prefix + "ffn_down.weight", width, config_.feed_forward));
    return packed;
  }

  absl::StatusOr<Weight> QueryKeyValue(const std::string& prefix) {
    const uint32_t width = config_.width;
    BATON_ASSIGN_OR_RETURN(const RawTensor q,
                           Raw(prefix + "attn_q.weight", config_.QueryWidth(), width));
    BATON_ASSIGN_OR_RETURN(const RawTensor k,
                           Raw(prefix + "attn_k.weight", config_.KvWidth(), width));
    BATON_ASSIGN_OR_RETURN(const RawTensor v,
                           Raw(prefix + "attn_v.weight", config_.KvWidth(), width));
    return backend_.Pack(std::array{q, k, v}, PartOrder::kQueryKeyValue);
  }

  absl::StatusOr<Weight> GateUp(const std::string& prefix) {
    BATON_ASSIGN_OR_RETURN(const RawTensor gate,
                           Raw(prefix + "ffn_gate.weight", config_.feed_forward, config_.width));
    BATON_ASSIGN_OR_RETURN(const RawTensor up,
                           Raw(prefix + "ffn_up.weight", config_.feed_forward, config_.width));
    return backend_.Pack(std::array{gate, up}, PartOrder::kGateUp);
  }

  absl::StatusOr<Weight> Matrix(const std::string& name, uint64_t rows, uint64_t cols) {
    BATON_ASSIGN_OR_RETURN(const RawTensor tensor, Raw(name, rows, cols));
    return backend_.Pack({&tensor, 1}, PartOrder::kConcatenated);
  }

  absl::StatusOr<Weight> Gain(const std::string& name) {
    BATON_ASSIGN_OR_RETURN(const RawTensor tensor, Raw(name, 1, config_.width));
    return backend_.PackGain(tensor);
  }

  absl::StatusOr<RawTensor> Raw(const std::string& name, uint64_t rows, uint64_t cols) {
    const GgufTensor* tensor = file_.FindTensor(name);
    if (tensor == nullptr) return absl::InvalidArgumentError(Named(name) + " is missing");
    if (tensor->dims[0] != cols || tensor->dims[1] != rows || tensor->dims[2] != 1 ||
        tensor->dims[3] != 1) {
      return absl::InvalidArgumentError(Named(name) + " is " + Shape(*tensor) +
                                        "; the configuration says " + std::to_string(cols) + " x " +
                                        std::to_string(rows));
    }
    const auto type = static_cast<kernels::TensorType>(tensor->type);
    if (!kernels::InfoOf(type).has_value()) {
      const auto traits = TensorTypeTraits(static_cast<uint32_t>(tensor->type));
      return absl::UnimplementedError(Named(name) + " has type " + std::string(traits->name) +
                                      ", which is not supported");
    }
    used_.insert(tensor->name);
    layer_.push_back(tensor);
    return RawTensor{tensor->name, type, rows, cols, tensor->bytes};
  }

  absl::Status CheckAllUsed() const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (!used_.contains(tensor.name)) {
        return absl::UnimplementedError(Named(tensor.name) + " is not part of architecture '" +
                                        config_.architecture + "' as it is supported");
      }
    }
    return absl::OkStatus();
  }

  // What has been packed is needed no longer: without this, file and packed weights would be in
  // memory side by side.
  void EndLayer() {
    for (const GgufTensor* tensor : layer_) {
      packed_bytes_ += tensor->bytes.size();
      file_.DropPages(*tensor);
    }
    layer_.clear();
    if (progress_) progress_(packed_bytes_, all_bytes_);
  }

  std::string Named(std::string_view tensor) const {
    return file_.name() + ": tensor '" + std::string(tensor) + "'";
  }

  static std::string Shape(const GgufTensor& tensor) {
    std::string shape = std::to_string(tensor.dims[0]);
    for (uint32_t d = 1; d < tensor.rank; ++d) shape += " x " + std::to_string(tensor.dims[d]);
    return shape;
  }

  const GgufReader& file_;
  const ModelConfig& config_;
  kernels::Backend& backend_;
  const PackProgress& progress_;
  uint64_t all_bytes_ = 0;
  uint64_t packed_bytes_ = 0;
  std::set<std::string_view> used_;
  std::vector<const GgufTensor*> layer_;  // packed since the last EndLayer
};

}  // namespace

absl::StatusOr<ModelWeights> PackWeights(const GgufReader& file, const ModelConfig& config,
                                         kernels::Backend& backend, const PackProgress& progress) {
  return Packer(file, config, backend, progress).Run();
}

}  // namespace baton::model
