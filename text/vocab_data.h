// What a model file says about its vocabulary, as plain data: filled from a GGUF by
// text/vocab_from_gguf.h, or by hand in tests.
#ifndef BATON_TEXT_VOCAB_DATA_H_
#define BATON_TEXT_VOCAB_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/decoder_state.h"

namespace baton {

// Values of `tokenizer.ggml.token_type`.
enum class TokenType : int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

inline constexpr TokenId kNoToken = -1;

struct VocabData {
  std::string model;                // `tokenizer.ggml.model`; only "gpt2" (byte-level BPE) is known
  std::string pre_tokenizer;        // `tokenizer.ggml.pre`; empty when the key is missing
  std::vector<std::string> tokens;  // as written in the file: the byte-level alphabet
  std::vector<TokenType> types;     // same length
  std::vector<std::string> merges;  // "LEFT RIGHT", best rank first
  TokenId bos = kNoToken;
  std::vector<TokenId> end_tokens;  // eos, eot, eom: each ends a generation
  TokenId eos = kNoToken;           // also among end_tokens; templates may write its text
  bool add_bos = false;
  std::string chat_template;  // empty: none
};

}  // namespace baton

#endif  // BATON_TEXT_VOCAB_DATA_H_
