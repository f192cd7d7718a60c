// Vocabulary and tokenizer of a GGUF file, for tests.
#ifndef BATON_TEXT_TEST_MODEL_H_
#define BATON_TEXT_TEST_MODEL_H_

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "gguf/gguf_reader.h"
#include "text/tokenizer.h"
#include "text/vocab.h"
#include "text/vocab_from_gguf.h"

namespace baton {

struct TestModel {
  VocabData data;
  std::unique_ptr<const Vocab> vocab;
  std::unique_ptr<const Tokenizer> tokenizer;
};

// Check HasFatalFailure() after it.
inline void LoadTestModel(const std::string& path, TestModel* model) {
  const auto gguf = GgufReader::Open(path);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  auto data = VocabDataFromGguf(**gguf);
  ASSERT_TRUE(data.ok()) << data.status();
  model->data = *std::move(data);
  auto vocab = Vocab::Create(model->data);
  ASSERT_TRUE(vocab.ok()) << vocab.status();
  model->vocab = std::make_unique<Vocab>(*std::move(vocab));
  auto tokenizer = Tokenizer::Create(model->data);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  model->tokenizer = *std::move(tokenizer);
}

inline std::string ReadTestFile(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

}  // namespace baton

#endif  // BATON_TEXT_TEST_MODEL_H_
