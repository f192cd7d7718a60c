// The tokenizer against other people's: recorded ids for 46 tricky strings, and PyPI `tokenizers`
// on generated strings with the model's own vocabulary.
#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>
#include <string>

#include "gguf/gguf_reader.h"
#include "text/detokenizer.h"
#include "text/test_files.h"
#include "text/test_model.h"
#include "text/tokenizer.h"
#include "text/vocab_from_gguf.h"

namespace baton {
namespace {

constexpr int kStrings = 10'000;
constexpr int kLongRuns = 9;
constexpr int kIdLists = 10'000;
constexpr int kSeed = 2024;

std::vector<std::string> SplitBy(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t next; (next = text.find(separator, at)) != std::string::npos;
       at = next + separator.size()) {
    parts.push_back(text.substr(at, next - at));
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::vector<TokenId> ParseIds(std::string text) {
  for (char& c : text) c = c == ',' ? ' ' : c;
  std::istringstream in(text);
  std::vector<TokenId> ids;
  for (TokenId id; in >> id;) ids.push_back(id);
  return ids;
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

void ExpectRecordedIds(const TestModel& model, const std::string& name) {
  const std::string folder = TestEnvironment("BATON_SHARED") + "/oracles/tokenizer/";
  // The last string also ends with the separator.
  std::vector<std::string> inputs =
      SplitBy(ReadTestFile(folder + "inputs.txt"), "\n__ggml_vocab_test__\n");
  inputs.pop_back();
  std::vector<std::string> lines = SplitBy(ReadTestFile(folder + name), "\n");
  ASSERT_EQ(inputs.size(), 46u);
  ASSERT_GE(lines.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto ids = model.tokenizer->Encode(inputs[i], SpecialTokenMode::kAsText);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, ParseIds(lines[i])) << "string " << i << ": " << inputs[i];
    EXPECT_EQ(*DecodeTokens(*model.vocab, *ids), inputs[i]);
  }
}

TEST(TokenizerOracle, Gpt2IdsOfTheRecordedStrings) {
  BATON_REQUIRE_ENVIRONMENT("BATON_SHARED");
  TestModel model;
  LoadTestModel(TestEnvironment("BATON_SHARED") + "/oracles/tokenizer/vocab-gpt-2.gguf", &model);
  if (HasFatalFailure()) return;
  ExpectRecordedIds(model, "gpt-2.out");
}

TEST(TokenizerOracle, SmollmIdsOfTheRecordedStrings) {
  BATON_REQUIRE_ENVIRONMENT("BATON_SHARED");
  BATON_REQUIRE_ENVIRONMENT("BATON_MODEL");
  TestModel model;
  LoadTestModel(TestEnvironment("BATON_MODEL"), &model);
  if (HasFatalFailure()) return;
  ExpectRecordedIds(model, "smollm.out");
}

TEST(TokenizerOracle, OtherModelKindsAreRefusedByName) {
  BATON_REQUIRE_ENVIRONMENT("BATON_SHARED");
  const auto gguf =
      GgufReader::Open(TestEnvironment("BATON_SHARED") + "/oracles/tokenizer/vocab-phi-3.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  const auto data = VocabDataFromGguf(**gguf);
  ASSERT_TRUE(data.ok()) << data.status();
  const absl::Status status = Vocab::Create(*data).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'llama'"), std::string::npos) << status;
}

TEST(TokenizerOracle, FiveMegabytesOfOneClassEncodeAndComeBack) {
  BATON_REQUIRE_ENVIRONMENT("BATON_MODEL");
  TestModel model;
  LoadTestModel(TestEnvironment("BATON_MODEL"), &model);
  if (HasFatalFailure()) return;
  for (const char character : {'a', '.', '7'}) {
    const std::string text(5'000'000, character);
    const auto ids = model.tokenizer->Encode(text, SpecialTokenMode::kAsText);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_TRUE(*DecodeTokens(*model.vocab, *ids) == text) << character;
  }
}

// One line of reference_tokenizer.py.
void CheckReferenceLine(const TestModel& model, const std::string& line, int counts[3]) {
  const std::vector<std::string> fields = SplitBy(line, "\t");
  ASSERT_EQ(fields.size(), 3u) << line;
  if (fields[0] == "decoded") {
    ++counts[2];
    const std::vector<TokenId> ids = ParseIds(fields[1]);
    ASSERT_EQ(*DecodeTokens(*model.vocab, ids), FromHex(fields[2])) << line;
    Detokenizer detokenizer(*model.vocab);
    std::string joined;
    for (const TokenId id : ids) {
      ASSERT_TRUE(detokenizer.Add(id).ok());
      joined += *detokenizer.Show(detokenizer.raw_bytes());
    }
    joined += *detokenizer.ShowLast(detokenizer.raw_bytes());
    ASSERT_EQ(joined, FromHex(fields[2])) << line;
    return;
  }
  const bool special = fields[0] == "special";
  ++counts[special ? 1 : 0];
  const auto ids = model.tokenizer->Encode(
      FromHex(fields[1]), special ? SpecialTokenMode::kAsTokens : SpecialTokenMode::kAsText);
  ASSERT_TRUE(ids.ok()) << ids.status();
  ASSERT_EQ(*ids, ParseIds(fields[2])) << fields[0] << " " << FromHex(fields[1].substr(0, 400));
}

std::string ReferenceCommand() {
  std::ostringstream command;
  command << "'" << TestEnvironment("BATON_PYTHON") << "' text/reference_tokenizer.py '"
          << TestEnvironment("BATON_MODEL") << "' " << kSeed << " " << kStrings << " " << kIdLists;
  return command.str();
}

TEST(TokenizerOracle, GeneratedStringsAndIdListsEqualTheReferenceLibrary) {
  BATON_REQUIRE_ENVIRONMENT("BATON_MODEL");
  BATON_REQUIRE_ENVIRONMENT("BATON_PYTHON");
  TestModel model;
  LoadTestModel(TestEnvironment("BATON_MODEL"), &model);
  if (HasFatalFailure()) return;
  FILE* reference = popen(ReferenceCommand().c_str(), "r");
  ASSERT_NE(reference, nullptr);
  int counts[3] = {0, 0, 0};
  std::string line;
  for (int c; (c = std::fgetc(reference)) != EOF && !HasFatalFailure();) {
    if (c != '\n') {
      line.push_back(static_cast<char>(c));
      continue;
    }
    CheckReferenceLine(model, line, counts);
    line.clear();
  }
  const int status = pclose(reference);
  if (HasFatalFailure()) return;
  EXPECT_EQ(status, 0) << ReferenceCommand();
  EXPECT_EQ(counts[0], kStrings + kLongRuns);
  EXPECT_EQ(counts[1], kStrings);
  EXPECT_EQ(counts[2], kIdLists);
}

}  // namespace
}  // namespace baton
