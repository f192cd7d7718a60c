// Any text in any segments: valid UTF-8 comes back byte for byte, anything else is refused, and no
// token of the model's own comes out of what a client wrote.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "text/test_vocab.h"
#include "text/text_segment.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/vocab.h"

namespace baton {
namespace {

struct Model {
  VocabData data;
  std::unique_ptr<const Vocab> vocab;
  std::unique_ptr<const Tokenizer> tokenizer;

  bool IsControl(TokenId token) const { return vocab->IsControl(token); }
  // What stands for the token in a text.
  std::string TextOf(TokenId token) const {
    return IsControl(token) ? data.tokens[static_cast<size_t>(token)]
                            : std::string(vocab->Bytes(token));
  }
};

Model MakeModel(const char* pre_tokenizer) {
  Model model;
  model.data = ByteVocabData();
  model.data.pre_tokenizer = pre_tokenizer;
  for (const auto& [left, right] : {std::pair<const char*, const char*>{"t", "h"},
                                    {"th", "e"},
                                    {" ", "the"},
                                    {"a", "a"},
                                    {"aa", "aa"},
                                    {"\xC3", "\xA9"},
                                    {"1", "2"},
                                    {"<", "|"}}) {
    AddMerge(left, right, &model.data);
  }
  AddToken("<|im_start|>", TokenType::kControl, &model.data);
  AddEndToken("<|im_end|>", &model.data);
  AddToken("<|im", TokenType::kControl, &model.data);  // a prefix of the two
  AddToken("<tool>", TokenType::kUserDefined, &model.data);
  auto vocab = Vocab::Create(model.data);
  auto tokenizer = Tokenizer::Create(model.data);
  BATON_CHECK(vocab.ok() && tokenizer.ok());
  model.vocab = std::make_unique<Vocab>(*std::move(vocab));
  model.tokenizer = *std::move(tokenizer);
  return model;
}

std::string TextOf(const Model& model, const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text += model.TextOf(id);
  return text;
}

void CheckWhole(const Model& model, std::string_view text) {
  for (const SpecialTokenMode mode : {SpecialTokenMode::kAsText, SpecialTokenMode::kAsTokens}) {
    const auto ids = model.tokenizer->Encode(text, mode);
    BATON_CHECK(ids.ok() == IsValidUtf8(text));
    if (!ids.ok()) {
      BATON_CHECK(absl::IsInvalidArgument(ids.status()));
      continue;
    }
    BATON_CHECK(TextOf(model, *ids) == text);
    if (mode == SpecialTokenMode::kAsTokens) continue;
    for (const TokenId id : *ids) BATON_CHECK(!model.IsControl(id));
  }
}

void CheckSegments(const Model& model, const std::vector<TextSegment>& segments) {
  std::string text;
  std::string trusted;  // of each byte: whether the model's own template wrote it
  for (const TextSegment& segment : segments) {
    text += segment.text;
    trusted.append(segment.text.size(), segment.from_user ? 'n' : 'y');
  }
  const auto ids = model.tokenizer->EncodeSegments(segments);
  BATON_CHECK(ids.ok() == IsValidUtf8(text));
  if (!ids.ok()) {
    BATON_CHECK(absl::IsInvalidArgument(ids.status()));
    return;
  }
  BATON_CHECK(TextOf(model, *ids) == text);
  size_t at = 0;
  for (const TokenId id : *ids) {
    const size_t bytes = model.TextOf(id).size();
    if (model.IsControl(id)) {
      BATON_CHECK(trusted.find('n', at) >= at + bytes);  // none of its bytes
    }
    at += bytes;
  }
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  static const Model* const models[] = {new Model(MakeModel("gpt-2")),
                                        new Model(MakeModel("smollm"))};
  FuzzInput input(data, size);
  const uint8_t kind = input.Byte();
  const Model& model = *models[kind & 1];
  if ((kind & 2) == 0) {
    CheckWhole(model, input.Rest());
    return 0;
  }
  std::vector<TextSegment> segments;
  while (!input.empty()) {
    const bool from_user = (input.Byte() & 1) != 0;
    segments.push_back({std::string(input.ShortText()), from_user});
  }
  CheckSegments(model, segments);
  return 0;
}
