// The perplexity of a text, as the published numbers were made.
#ifndef BATON_TESTS_GOLDEN_PERPLEXITY_H_
#define BATON_TESTS_GOLDEN_PERPLEXITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "gguf/gguf_reader.h"
#include "model/model_harness.h"

namespace baton::golden {

// Of the file at `text_path` under the model's vocabulary. NOT_FOUND: no such text.
absl::StatusOr<std::vector<TokenId>> TokensOfText(const GgufReader& model,
                                                  const std::string& text_path);

// exp of the mean negative log likelihood, each window scored from its second token. The harness
// has room for a window.
double Perplexity(const std::vector<TokenId>& tokens, uint32_t window,
                  model::ModelHarness& harness);

}  // namespace baton::golden

#endif  // BATON_TESTS_GOLDEN_PERPLEXITY_H_
