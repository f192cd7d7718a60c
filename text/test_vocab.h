// A small vocabulary for tests: every byte is a token (id = byte), then whatever the test adds.
#ifndef BATON_TEXT_TEST_VOCAB_H_
#define BATON_TEXT_TEST_VOCAB_H_

#include <string>

#include "text/byte_alphabet.h"
#include "text/vocab_data.h"

namespace baton {

inline VocabData ByteVocabData() {
  VocabData data;
  data.model = "gpt2";
  data.pre_tokenizer = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(BytesToAlphabet(std::string(1, static_cast<char>(byte))));
    data.types.push_back(TokenType::kNormal);
  }
  return data;
}

// Returns the new token's id. `text` of a normal token is raw bytes.
inline TokenId AddToken(const std::string& text, TokenType type, VocabData* data) {
  data->tokens.push_back(type == TokenType::kNormal ? BytesToAlphabet(text) : text);
  data->types.push_back(type);
  return static_cast<TokenId>(data->tokens.size() - 1);
}

// A token that ends a choice.
inline TokenId AddEndToken(const std::string& text, VocabData* data) {
  const TokenId id = AddToken(text, TokenType::kControl, data);
  data->end_tokens.push_back(id);
  if (data->eos == kNoToken) data->eos = id;
  return id;
}

// Adds the merge of two raw byte strings and the token it makes.
inline TokenId AddMerge(const std::string& left, const std::string& right, VocabData* data) {
  data->merges.push_back(BytesToAlphabet(left) + " " + BytesToAlphabet(right));
  return AddToken(left + right, TokenType::kNormal, data);
}

}  // namespace baton

#endif  // BATON_TEXT_TEST_VOCAB_H_
