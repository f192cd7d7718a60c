#include "text/vocab_from_gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>

#include "gguf/gguf_reader.h"
#include "text/test_files.h"
#include "text/test_model.h"

namespace baton {
namespace {

// A good file, damaged in one place without moving anything.
class VocabFromGgufTest : public testing::Test {
 protected:
  void SetUp() override {
    BATON_REQUIRE_ENVIRONMENT("BATON_SHARED");
    bytes_ = ReadTestFile(TestEnvironment("BATON_SHARED") + "/oracles/tokenizer/vocab-gpt-2.gguf");
    ASSERT_FALSE(bytes_.empty());
  }

  // Replaces the first occurrence; both are equally long.
  void Replace(const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    const size_t at = bytes_.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bytes_.replace(at, from.size(), to);
  }
  // A 4-byte value of `key`.
  void SetNumber(const std::string& key, uint32_t value) {
    const size_t at = bytes_.find(key);
    ASSERT_NE(at, std::string::npos) << key;
    std::memcpy(&bytes_[at + key.size() + 4], &value, sizeof value);
  }

  // Of everything a router does with it at start.
  absl::Status Load() const {
    const auto gguf =
        GgufReader::FromBytes(std::as_bytes(std::span(bytes_.data(), bytes_.size())), "test.gguf");
    if (!gguf.ok()) return gguf.status();
    const auto data = VocabDataFromGguf(**gguf);
    if (!data.ok()) return data.status();
    const auto vocab = Vocab::Create(*data);
    if (!vocab.ok()) return vocab.status();
    return Tokenizer::Create(*data).status();
  }

  void ExpectRefused(const std::string& naming) const {
    const absl::Status status = Load();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(naming), std::string::npos) << status;
  }

  std::string bytes_;
};

TEST_F(VocabFromGgufTest, TheGoodFileLoads) { EXPECT_TRUE(Load().ok()) << Load(); }

TEST_F(VocabFromGgufTest, MissingPreTokenizerIsNeverADefault) {
  Replace("tokenizer.ggml.pre", "tokenizer.ggml.xxx");
  ExpectRefused("tokenizer.ggml.pre");
}

TEST_F(VocabFromGgufTest, UnknownPreTokenizerIsRefusedByName) {
  const size_t key = bytes_.find("tokenizer.ggml.pre");
  ASSERT_NE(key, std::string::npos);
  const size_t value = bytes_.find("gpt-2", key);
  bytes_.replace(value, 5, "gpt-9");
  ExpectRefused("'gpt-9'");
}

TEST_F(VocabFromGgufTest, MissingKeysAreNamed) {
  for (const std::string key : {"model", "tokens", "token_type"}) {
    SetUp();
    Replace("tokenizer.ggml." + key, "tokenizer.ggmx." + key);
    ExpectRefused("'tokenizer.ggml." + key + "' is missing");
  }
}

TEST_F(VocabFromGgufTest, SpecialTokensOutsideTheVocabularyAreRefused) {
  for (const std::string name : {"bos", "eos"}) {
    SetUp();
    SetNumber("tokenizer.ggml." + name + "_token_id", 50257);
    ExpectRefused("'tokenizer.ggml." + name + "_token_id' is 50257");
    SetNumber("tokenizer.ggml." + name + "_token_id", 0xFFFFFFFF);
    ExpectRefused(name);
  }
}

TEST_F(VocabFromGgufTest, ValuesOfAnotherTypeAreRefusedByKey) {
  const size_t at = bytes_.find("tokenizer.ggml.pre");
  ASSERT_NE(at, std::string::npos);
  bytes_[at + std::strlen("tokenizer.ggml.pre")] = 10;  // UINT64: the length is taken as the value
  const absl::Status status = Load();
  EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace baton
