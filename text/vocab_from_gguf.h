#ifndef BATON_TEXT_VOCAB_FROM_GGUF_H_
#define BATON_TEXT_VOCAB_FROM_GGUF_H_

#include "absl/status/statusor.h"
#include "text/vocab_data.h"

namespace baton {

class GgufReader;

// INVALID_ARGUMENT naming the key when one is missing, of the wrong type or out of range.
absl::StatusOr<VocabData> VocabDataFromGguf(const GgufReader& gguf);

}  // namespace baton

#endif  // BATON_TEXT_VOCAB_FROM_GGUF_H_
