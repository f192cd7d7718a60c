#include "model/config.h"

#include <cmath>
#include <string_view>

#include "common/status_macros.h"

namespace baton::model {
namespace {

// Far above any model that fits this machine; they keep products of two or three within 64 bits.
constexpr uint32_t kMaxLayers = 4096;
constexpr uint32_t kMaxWidth = 1 << 20;
constexpr uint32_t kMaxHeadDim = 1024;
constexpr uint32_t kMaxContext = 1 << 20;
constexpr uint32_t kMaxVocab = 1 << 24;

absl::Status Bad(const GgufReader& file, std::string_view key, const std::string& what) {
  return absl::InvalidArgumentError(file.name() + ": key '" + std::string(key) + "' " + what);
}

class KeyReader {
 public:
  KeyReader(const GgufReader& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  std::string Name(std::string_view key) const { return prefix_ + std::string(key); }
  bool Has(std::string_view key) const { return file_.Has(Name(key)); }

  absl::StatusOr<uint32_t> Count(std::string_view key, uint32_t max) const {
    BATON_ASSIGN_OR_RETURN(const int64_t value, file_.GetInt(Name(key)));
    if (value < 1 || value > max) {
      return Bad(file_, Name(key),
                 "is " + std::to_string(value) + ", not in 1.." + std::to_string(max));
    }
    return static_cast<uint32_t>(value);
  }

  absl::StatusOr<double> Positive(std::string_view key) const {
    BATON_ASSIGN_OR_RETURN(const double value, file_.GetFloat(Name(key)));
    if (!std::isfinite(value) || value <= 0) {
      return Bad(file_, Name(key), "is not a positive finite number");
    }
    return value;
  }

 private:
  const GgufReader& file_;
  const std::string prefix_;
};

absl::Status ReadHeads(const GgufReader& file, const KeyReader& keys, ModelConfig& config) {
  BATON_ASSIGN_OR_RETURN(config.num_heads, keys.Count("attention.head_count", config.width));
  BATON_ASSIGN_OR_RETURN(config.num_kv_heads,
                         keys.Count("attention.head_count_kv", config.num_heads));
  if (config.num_heads % config.num_kv_heads != 0) {
    return Bad(file, keys.Name("attention.head_count_kv"),
               "does not divide the head count " + std::to_string(config.num_heads));
  }
  if (keys.Has("attention.key_length")) {
    BATON_ASSIGN_OR_RETURN(config.head_dim, keys.Count("attention.key_length", kMaxHeadDim));
  } else if (config.width % config.num_heads == 0 &&
             config.width / config.num_heads <= kMaxHeadDim) {
    config.head_dim = config.width / config.num_heads;
  } else {
    return Bad(file, keys.Name("attention.head_count"),
               "does not divide the width " + std::to_string(config.width));
  }
  if (config.head_dim % 2 != 0) {
    return Bad(file, keys.Name("attention.head_count"),
               "gives heads of " + std::to_string(config.head_dim) + ", an odd number");
  }
  return absl::OkStatus();
}

absl::Status CheckRope(const GgufReader& file, const KeyReader& keys, const ModelConfig& config) {
  if (keys.Has("rope.dimension_count")) {
    BATON_ASSIGN_OR_RETURN(const uint32_t dims, keys.Count("rope.dimension_count", kMaxHeadDim));
    if (dims != config.head_dim) {
      return absl::UnimplementedError(file.name() + ": key '" + keys.Name("rope.dimension_count") +
                                      "': rotating " + std::to_string(dims) + " of " +
                                      std::to_string(config.head_dim) +
                                      " dimensions is not supported");
    }
  }
  if (keys.Has("rope.scaling.type")) {
    BATON_ASSIGN_OR_RETURN(const std::string_view type,
                           file.GetString(keys.Name("rope.scaling.type")));
    if (type != "none") {
      return absl::UnimplementedError(file.name() + ": key '" + keys.Name("rope.scaling.type") +
                                      "': '" + std::string(type) + "' is not supported");
    }
  }
  if (file.FindTensor("rope_freqs.weight") != nullptr) {
    return absl::UnimplementedError(file.name() +
                                    ": tensor 'rope_freqs.weight': scaled rotation frequencies "
                                    "are not supported");
  }
  return absl::OkStatus();
}

// The kernels of a CPU let every token see all before it.
absl::Status CheckWindow(const GgufReader& file, const KeyReader& keys, const ModelConfig& config) {
  constexpr std::string_view kKey = "attention.sliding_window";
  if (!keys.Has(kKey)) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const int64_t window, file.GetInt(keys.Name(kKey)));
  if (window == 0 || window >= config.context_length) return absl::OkStatus();
  return absl::UnimplementedError(file.name() + ": key '" + keys.Name(kKey) +
                                  "': attention in a sliding window is not supported");
}

absl::StatusOr<uint32_t> ReadVocabSize(const GgufReader& file) {
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return absl::InvalidArgumentError(file.name() + ": tensor 'token_embd.weight' is missing");
  }
  if (embedding->Rows() > kMaxVocab) {
    return absl::InvalidArgumentError(file.name() + ": tensor 'token_embd.weight' has " +
                                      std::to_string(embedding->Rows()) + " rows, limit " +
                                      std::to_string(kMaxVocab));
  }
  return static_cast<uint32_t>(embedding->Rows());
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const GgufReader& file) {
  ModelConfig config;
  BATON_ASSIGN_OR_RETURN(const std::string_view architecture,
                         file.GetString("general.architecture"));
  if (architecture != "llama") {
    return absl::UnimplementedError(file.name() + ": architecture '" + std::string(architecture) +
                                    "' is not supported (only llama)");
  }
  config.architecture = architecture;
  if (const auto name = file.GetString("general.name"); name.ok()) config.name = *name;
  const KeyReader keys(file, architecture);
  BATON_ASSIGN_OR_RETURN(config.num_layers, keys.Count("block_count", kMaxLayers));
  BATON_ASSIGN_OR_RETURN(config.context_length, keys.Count("context_length", kMaxContext));
  BATON_ASSIGN_OR_RETURN(config.width, keys.Count("embedding_length", kMaxWidth));
  BATON_ASSIGN_OR_RETURN(config.feed_forward, keys.Count("feed_forward_length", kMaxWidth));
  BATON_RETURN_IF_ERROR(ReadHeads(file, keys, config));
  if (keys.Has("expert_count")) {
    BATON_ASSIGN_OR_RETURN(const int64_t experts, file.GetInt(keys.Name("expert_count")));
    if (experts != 0) {
      return absl::UnimplementedError(file.name() + ": key '" + keys.Name("expert_count") +
                                      "': mixtures of experts are not supported");
    }
  }
  config.rope_base = 10000;
  if (keys.Has("rope.freq_base")) {
    BATON_ASSIGN_OR_RETURN(config.rope_base, keys.Positive("rope.freq_base"));
  }
  BATON_ASSIGN_OR_RETURN(config.norm_epsilon, keys.Positive("attention.layer_norm_rms_epsilon"));
  BATON_RETURN_IF_ERROR(CheckRope(file, keys, config));
  BATON_RETURN_IF_ERROR(CheckWindow(file, keys, config));
  BATON_ASSIGN_OR_RETURN(config.vocab_size, ReadVocabSize(file));
  return config;
}

}  // namespace baton::model
