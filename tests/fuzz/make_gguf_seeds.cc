// Writes the valid files that the gguf corpus began with: make_gguf_seeds FOLDER. One layer, a
// handful of tokens: small files are mutated more often in the same time.
#include <cstdio>
#include <string>
#include <vector>

#include "common/check.h"
#include "gguf/gguf_types.h"
#include "gguf/gguf_writer.h"

namespace baton {
namespace {

constexpr uint32_t kWidth = 32;

void AddKeys(GgufWriter& writer) {
  writer.AddString("general.architecture", "llama");
  writer.AddUint32("llama.block_count", 1);
  writer.AddUint32("llama.context_length", 64);
  writer.AddUint32("llama.embedding_length", kWidth);
  writer.AddUint32("llama.feed_forward_length", kWidth);
  writer.AddUint32("llama.attention.head_count", 2);
  writer.AddUint32("llama.attention.head_count_kv", 1);
  writer.AddFloat32("llama.rope.freq_base", 10000);
  writer.AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

void AddVocab(GgufWriter& writer) {
  writer.AddString("tokenizer.ggml.model", "gpt2");
  writer.AddString("tokenizer.ggml.pre", "smollm");
  writer.AddStringArray("tokenizer.ggml.tokens",
                        {"<|im_end|>", "a", "b", "T", "h", "e", "he", "The"});
  writer.AddInt32Array("tokenizer.ggml.token_type", {3, 1, 1, 1, 1, 1, 1, 1});
  writer.AddStringArray("tokenizer.ggml.merges", {"h e", "T he"});
  writer.AddUint32("tokenizer.ggml.bos_token_id", 0);
  writer.AddUint32("tokenizer.ggml.eos_token_id", 0);
  writer.AddBool("tokenizer.ggml.add_bos_token", false);
  writer.AddString("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}");
}

void AddMatrix(GgufWriter& writer, const std::string& name, GgufTensorType type, uint64_t rows) {
  const auto traits = TensorTypeTraits(static_cast<uint32_t>(type));
  BATON_CHECK(traits.has_value());
  const uint64_t bytes = kWidth / traits->block_elements * traits->block_bytes * rows;
  writer.AddTensor(name, type, {kWidth, rows}, std::string(bytes, '\x11'));
}

void AddTensors(GgufWriter& writer, GgufTensorType type) {
  const std::string gains(kWidth * sizeof(float), '\x3f');
  AddMatrix(writer, "token_embd.weight", type, 8);
  for (const char* name : {"attn_norm", "ffn_norm"}) {
    writer.AddTensor("blk.0." + std::string(name) + ".weight", GgufTensorType::kF32, {kWidth},
                     gains);
  }
  for (const char* name : {"attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    AddMatrix(writer, "blk.0." + std::string(name) + ".weight", type, kWidth);
  }
  for (const char* name : {"attn_k", "attn_v"}) {
    AddMatrix(writer, "blk.0." + std::string(name) + ".weight", type, kWidth / 2);
  }
  writer.AddTensor("output_norm.weight", GgufTensorType::kF32, {kWidth}, gains);
}

void Write(const std::string& path, bool vocab, const GgufTensorType* type) {
  GgufWriter writer;
  AddKeys(writer);
  if (vocab) AddVocab(writer);
  if (type != nullptr) AddTensors(writer, *type);
  BATON_CHECK(writer.WriteFile(path).ok());
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  using baton::GgufTensorType;
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_gguf_seeds FOLDER\n");
    return 2;
  }
  const std::string folder = std::string(argv[1]) + "/";
  baton::Write(folder + "keys", false, nullptr);
  baton::Write(folder + "vocabulary", true, nullptr);
  const GgufTensorType q4 = GgufTensorType::kQ4_1;
  const GgufTensorType q8 = GgufTensorType::kQ8_0;
  baton::Write(folder + "model_q4_1", true, &q4);
  baton::Write(folder + "model_q8_0", false, &q8);
  return 0;
}
