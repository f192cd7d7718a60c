// A byte-level BPE vocabulary of a few hundred tokens for test models: all 256 bytes, some English
// merges, and the three control tokens of ChatML.
#ifndef BATON_MODEL_TINY_VOCAB_H_
#define BATON_MODEL_TINY_VOCAB_H_

#include <cstdint>

#include "gguf/gguf_writer.h"

namespace baton::model {

// Ids of the control tokens, equal to those of SmolLM2.
inline constexpr int32_t kTinyEndOfText = 0;
inline constexpr int32_t kTinyImStart = 1;
inline constexpr int32_t kTinyImEnd = 2;  // the end token

// Number of tokens.
uint32_t TinyVocabSize();

// Adds the tokenizer.* keys.
void AddTinyVocab(GgufWriter& writer);

}  // namespace baton::model

#endif  // BATON_MODEL_TINY_VOCAB_H_
