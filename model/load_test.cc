#include "model/load.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/quantize.h"
#include "model/tiny_model.h"
#include "model/tiny_vocab.h"

namespace baton::model {
namespace {

using ::testing::HasSubstr;

std::string PathOf(const std::string& name) { return ::testing::TempDir() + name; }

std::string Written(const std::string& name, const std::string& bytes) {
  const std::string path = PathOf(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TinyModelOptions Small() {
  TinyModelOptions options;
  options.context = 64;
  return options;
}

absl::Status LoadStatus(const std::string& path, const std::string& backend = "reference") {
  LoadOptions options;
  options.path = path;
  options.backend = backend;
  return Load(options).status();
}

void ExpectError(const std::string& path, absl::StatusCode code, const std::string& text) {
  const absl::Status status = LoadStatus(path);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(LoadTest, LoadsEveryFormatTiedOrNot) {
  for (const GgufTensorType type : kQuantizeFormats) {
    TinyModelOptions options = Small();
    options.matrices = options.embedding = type;
    options.tied_head = type == GgufTensorType::kQ8_0;
    LoadOptions load;
    load.path = Written("good.gguf", TinyModel(options).Serialize());
    load.backend = "reference";
    load.context = 32;
    const auto model = Load(load);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->config.context_length, 32u);
    EXPECT_EQ(model->layout.layers.size(), 2u);
    EXPECT_EQ(model->weights.separate_head == nullptr, options.tied_head);
  }
}

TEST(LoadTest, ProgressGrowsLayerByLayerToTheWholeFile) {
  std::vector<uint64_t> packed;
  uint64_t all = 0;
  LoadOptions load;
  load.path = Written("progress.gguf", TinyModel(Small()).Serialize());
  load.backend = "cpu";
  load.progress = [&](uint64_t packed_bytes, uint64_t all_bytes) {
    packed.push_back(packed_bytes);
    all = all_bytes;
  };
  const auto model = Load(load);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(packed.size(), Small().layers + 1);
  EXPECT_EQ(std::adjacent_find(packed.begin(), packed.end(), std::greater_equal<>()), packed.end());
  EXPECT_EQ(packed.back(), all);
  uint64_t tensor_bytes = 0;
  for (const GgufTensor& tensor : model->file->tensors()) tensor_bytes += tensor.bytes.size();
  EXPECT_EQ(all, tensor_bytes);
}

TEST(LoadTest, DigestsTellModelsApart) {
  TinyModelOptions options = Small();
  LoadOptions load;
  load.backend = "reference";
  load.path = Written("a.gguf", TinyModel(options).Serialize());
  const auto a = Load(load);
  load.path = Written("same.gguf", TinyModel(options).Serialize());
  load.threads = 2;
  const auto same = Load(load);
  options.seed = 2;
  load.path = Written("b.gguf", TinyModel(options).Serialize());
  const auto b = Load(load);
  ASSERT_TRUE(a.ok() && same.ok() && b.ok());
  EXPECT_EQ(a->numerics_id, same->numerics_id);
  EXPECT_NE(a->weights_hash, b->weights_hash);
  EXPECT_NE(a->numerics_id, b->numerics_id);
}

TEST(LoadTest, AnInt8CacheIsAnotherArithmeticAndLayout) {
  LoadOptions load;
  load.path = Written("kv.gguf", TinyModel(Small()).Serialize());
  const auto f16 = Load(load);
  load.kv_type = "int8";
  const auto int8 = Load(load);
  ASSERT_TRUE(f16.ok() && int8.ok());
  EXPECT_EQ(f16->weights_hash, int8->weights_hash);
  EXPECT_NE(f16->numerics_id, int8->numerics_id);
  EXPECT_NE(f16->layout.Fingerprint(1), int8->layout.Fingerprint(1));
}

TEST(LoadTest, BadFilesAreNamed) {
  ExpectError(PathOf("none.gguf"), absl::StatusCode::kNotFound, "none.gguf");
  ExpectError(Written("text.gguf", "hello, this is no model"), absl::StatusCode::kInvalidArgument,
              "not a GGUF file");
  ExpectError(Written("empty.gguf", ""), absl::StatusCode::kInvalidArgument, "empty.gguf");
  GgufWriter other;
  other.AddString("general.architecture", "bert");
  ExpectError(Written("bert.gguf", other.Serialize()), absl::StatusCode::kUnimplemented, "'bert'");
}

TEST(LoadTest, BadOptionsAreNamed) {
  const std::string path = Written("good.gguf", TinyModel(Small()).Serialize());
  EXPECT_THAT(std::string(LoadStatus(path, "tpu").message()), HasSubstr("'tpu'"));
  LoadOptions options;
  options.path = path;
  options.backend = "reference";
  options.threads = 0;
  EXPECT_THAT(std::string(Load(options).status().message()), HasSubstr("threads is 0"));
  options.threads = 1;
  options.kv_type = "int8";
  EXPECT_THAT(std::string(Load(options).status().message()), HasSubstr("'int8'"));
  options.kv_type = "auto";
  options.block_size = 17;
  EXPECT_THAT(std::string(Load(options).status().message()), HasSubstr("block_size 17"));
}

TEST(LoadTest, WrongTensorsAreNamed) {
  const std::string f32(64 * 4, '\0');
  GgufWriter extra = TinyModel(Small());
  extra.AddTensor("blk.0.attn_q.bias", GgufTensorType::kF32, {64}, f32);
  ExpectError(Written("extra.gguf", extra.Serialize()), absl::StatusCode::kUnimplemented,
              "'blk.0.attn_q.bias'");
  GgufWriter head = TinyModel(Small());
  head.AddTensor("output.weight", GgufTensorType::kF32, {64}, f32);
  ExpectError(Written("head.gguf", head.Serialize()), absl::StatusCode::kInvalidArgument,
              "tensor 'output.weight' is 64; the configuration says 64 x ");

  std::string missing = TinyModel(Small()).Serialize();
  missing.replace(missing.find("blk.1.ffn_up"), 12, "blk.9.ffn_up");
  ExpectError(Written("missing.gguf", missing), absl::StatusCode::kInvalidArgument,
              "'blk.1.ffn_up.weight' is missing");

  TinyModelOptions five_bits = Small();
  five_bits.tied_head = true;
  GgufWriter unsupported = TinyModel(five_bits);
  unsupported.AddTensor("output.weight", GgufTensorType::kQ5_0, {64, TinyVocabSize()},
                        std::string(2 * 22 * TinyVocabSize(), '\0'));
  ExpectError(Written("q5.gguf", unsupported.Serialize()), absl::StatusCode::kUnimplemented,
              "'output.weight' has type Q5_0");
}

// Most flips hit weights and load; the directory and keys are a small part, so half of the flips
// aim there.
TEST(LoadTest, DamagedModelsAreRefusedOrLoadedButNeverCrash) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const std::string bytes = TinyModel(Small()).Serialize();
  const size_t keys_end = bytes.find("token_embd.weight") + 2048;
  int loaded = 0;
  for (int file = 0; file < 300; ++file) {
    std::string copy = bytes;
    const int flips = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < flips; ++i) {
      const size_t range = random() % 2 == 0 ? keys_end : copy.size();
      copy[random() % range] ^= static_cast<char>(1 << (random() % 8));
    }
    if (random() % 4 == 0) copy.resize(random() % copy.size());
    loaded += LoadStatus(Written("damaged.gguf", copy)).ok() ? 1 : 0;
  }
  std::cout << loaded << " of 300 loaded\n";
}

}  // namespace
}  // namespace baton::model
