#include "model/config.h"

#include <span>
#include <string>
#include <vector>

#include "gguf/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::model {
namespace {

using ::testing::HasSubstr;

struct Number {
  std::string key;
  uint32_t value;
};

const std::vector<Number>& GoodNumbers() {
  static const std::vector<Number>* const numbers = new std::vector<Number>{
      {"llama.block_count", 2},          {"llama.context_length", 128},
      {"llama.embedding_length", 64},    {"llama.feed_forward_length", 96},
      {"llama.attention.head_count", 4}, {"llama.attention.head_count_kv", 2},
  };
  return *numbers;
}

std::string FileWith(const std::vector<Number>& numbers,
                     const std::string& architecture = "llama") {
  GgufWriter writer;
  writer.AddString("general.architecture", architecture);
  for (const Number& number : numbers) writer.AddUint32(number.key, number.value);
  writer.AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddTensor("token_embd.weight", GgufTensorType::kF32, {64, 10},
                   std::string(64 * 10 * 4, '\0'));
  return writer.Serialize();
}

absl::StatusOr<ModelConfig> Config(const std::string& bytes) {
  const auto reader = GgufReader::FromBytes(std::as_bytes(std::span(bytes)), "m.gguf");
  EXPECT_TRUE(reader.ok()) << reader.status();
  return ReadModelConfig(**reader);
}

TEST(ConfigTest, ReadsALlamaModel) {
  const auto config = Config(FileWith(GoodNumbers()));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_layers, 2u);
  EXPECT_EQ(config->head_dim, 16u);
  EXPECT_EQ(config->KvWidth(), 32u);
  EXPECT_EQ(config->vocab_size, 10u);
  EXPECT_EQ(config->rope_base, 10000.0);
}

TEST(ConfigTest, MissingOrZeroNumbersNameTheirKey) {
  for (size_t i = 0; i < GoodNumbers().size(); ++i) {
    std::vector<Number> numbers = GoodNumbers();
    const std::string key = numbers[i].key;
    numbers[i].value = 0;
    const auto zero = Config(FileWith(numbers));
    ASSERT_FALSE(zero.ok()) << key;
    EXPECT_THAT(std::string(zero.status().message()), HasSubstr("'" + key + "' is 0"));
    numbers.erase(numbers.begin() + static_cast<ptrdiff_t>(i));
    const auto missing = Config(FileWith(numbers));
    ASSERT_FALSE(missing.ok()) << key;
    EXPECT_THAT(std::string(missing.status().message()), HasSubstr("'" + key + "' is missing"));
  }
}

TEST(ConfigTest, NumbersThatDoNotFitTogetherAreRefused) {
  const auto with = [](const std::string& key, uint32_t value) {
    std::vector<Number> numbers = GoodNumbers();
    for (Number& number : numbers) {
      if (number.key == key) number.value = value;
    }
    return Config(FileWith(numbers)).status();
  };
  EXPECT_THAT(std::string(with("llama.attention.head_count", 5).message()),
              HasSubstr("does not divide"));
  EXPECT_THAT(std::string(with("llama.attention.head_count_kv", 3).message()),
              HasSubstr("does not divide"));
  EXPECT_THAT(std::string(with("llama.attention.head_count", 64).message()),
              HasSubstr("odd number"));
  EXPECT_THAT(std::string(with("llama.block_count", 4294967295u).message()),
              HasSubstr("not in 1..4096"));
}

TEST(ConfigTest, AWindowThatHidesSomethingIsRefused) {
  const auto with = [](uint32_t window) {
    std::vector<Number> numbers = GoodNumbers();
    numbers.push_back({"llama.attention.sliding_window", window});
    return Config(FileWith(numbers)).status();
  };
  EXPECT_TRUE(with(0).ok()) << with(0);
  EXPECT_TRUE(with(128).ok()) << "all of the context: " << with(128);
  EXPECT_EQ(with(127).code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(with(127).message()), HasSubstr("'llama.attention.sliding_window'"));
}

TEST(ConfigTest, UnknownArchitectureIsRefusedByName) {
  const auto config = Config(FileWith(GoodNumbers(), "mamba"));
  EXPECT_EQ(config.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("'mamba'"));
}

}  // namespace
}  // namespace baton::model
