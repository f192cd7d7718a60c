#include "model/tiny_model.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "model/quantize.h"
#include "model/tiny_vocab.h"

namespace baton::model {
namespace {

// Bit-equal everywhere: integer state, and sums of uniforms instead of a libm normal.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}

  float Normal() {  // mean 0, standard deviation 1
    int64_t sum = 0;
    for (int i = 0; i < 12; ++i) sum += static_cast<int64_t>(Next() >> 44);
    return static_cast<float>(sum - 6 * (int64_t{1} << 20)) * 0x1p-20f;
  }

 private:
  uint64_t Next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
  }

  uint64_t state_;
};

class TinyModelBuilder {
 public:
  explicit TinyModelBuilder(const TinyModelOptions& options)
      : options_(options), random_(options.seed) {}

  GgufWriter Build() {
    AddKeys();
    AddTinyVocab(writer_);
    const uint32_t vocab = TinyVocabSize();
    writer_.AddUint32("llama.vocab_size", vocab);
    // Small against what the layers add, so that the answer depends on the prompt more than on the
    // last token alone, also when the head is tied.
    AddMatrix("token_embd.weight", options_.embedding, options_.width, vocab, 0.3f);
    for (uint32_t layer = 0; layer < options_.layers; ++layer) AddLayer(layer);
    // Logits of a few units' standard deviation: wide gaps.
    AddNorm("output_norm.weight", options_.tied_head ? 2.0f : 1.0f);
    if (!options_.tied_head) {
      AddMatrix("output.weight", options_.embedding, options_.width, vocab, kHeadGain / Root());
    }
    return std::move(writer_);
  }

 private:
  static constexpr float kHeadGain = 5.0f;

  float Root() const { return std::sqrt(static_cast<float>(options_.width)); }

  void AddKeys() {
    writer_.AddString("general.architecture", "llama");
    writer_.AddString("general.name", "tiny random llama");
    writer_.AddUint32("llama.block_count", options_.layers);
    writer_.AddUint32("llama.context_length", options_.context);
    writer_.AddUint32("llama.embedding_length", options_.width);
    writer_.AddUint32("llama.feed_forward_length", options_.feed_forward);
    writer_.AddUint32("llama.attention.head_count", options_.heads);
    writer_.AddUint32("llama.attention.head_count_kv", options_.kv_heads);
    writer_.AddFloat32("llama.rope.freq_base", 10000.0f);
    writer_.AddUint32("llama.rope.dimension_count", options_.width / options_.heads);
    writer_.AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  }

  void AddLayer(uint32_t layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const uint32_t width = options_.width;
    const uint32_t kv_width = width / options_.heads * options_.kv_heads;
    const float gain = 1.0f / Root();
    const auto matrix = [&](std::string_view name, uint32_t in, uint32_t out, float scale) {
      AddMatrix(prefix + std::string(name) + ".weight", options_.matrices, in, out, scale);
    };
    AddNorm(prefix + "attn_norm.weight", 1.0f);
    matrix("attn_q", width, width, 1.5f * gain);
    matrix("attn_k", width, kv_width, 1.5f * gain);
    matrix("attn_v", width, kv_width, 2.0f * gain);
    matrix("attn_output", width, width, gain);
    AddNorm(prefix + "ffn_norm.weight", 1.0f);
    matrix("ffn_gate", width, options_.feed_forward, gain);
    matrix("ffn_up", width, options_.feed_forward, gain);
    matrix("ffn_down", options_.feed_forward, width, 1.5f * gain);
  }

  void AddNorm(const std::string& name, float mean) {
    std::vector<float> values(options_.width);
    for (float& v : values) v = mean * (1.0f + 0.1f * random_.Normal());
    writer_.AddTensor(name, GgufTensorType::kF32, {options_.width},
                      Quantize(values, GgufTensorType::kF32));
  }

  void AddMatrix(const std::string& name, GgufTensorType type, uint64_t in, uint64_t out,
                 float deviation) {
    std::vector<float> values(in * out);
    for (float& v : values) v = deviation * random_.Normal();
    writer_.AddTensor(name, type, {in, out}, Quantize(values, type));
  }

  const TinyModelOptions options_;
  Random random_;
  GgufWriter writer_;
};

}  // namespace

GgufWriter TinyModel(const TinyModelOptions& options) { return TinyModelBuilder(options).Build(); }

absl::Status WriteTinyModel(const TinyModelOptions& options, const std::string& path) {
  return TinyModel(options).WriteFile(path);
}

}  // namespace baton::model
