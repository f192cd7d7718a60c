#include "tests/golden/perplexity.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "common/status_macros.h"
#include "tests/golden/oracle.h"
#include "text/tokenizer.h"
#include "text/vocab_from_gguf.h"

namespace baton::golden {
namespace {

constexpr uint32_t kChunk = 256;

}  // namespace

absl::StatusOr<std::vector<TokenId>> TokensOfText(const GgufReader& model,
                                                  const std::string& text_path) {
  std::ifstream file(text_path, std::ios::binary);
  if (!file) return absl::NotFoundError("cannot open " + text_path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  BATON_ASSIGN_OR_RETURN(VocabData vocab, VocabDataFromGguf(model));
  vocab.pre_tokenizer = "gpt-2";  // the published numbers split runs of digits as GPT-2 does
  BATON_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Create(vocab));
  return tokenizer->Encode(text, SpecialTokenMode::kAsText);
}

double Perplexity(const std::vector<TokenId>& tokens, uint32_t window,
                  model::ModelHarness& harness) {
  double nll = 0;
  size_t scored = 0;
  for (size_t begin = 0; begin < tokens.size(); begin += window) {
    const size_t end = std::min(begin + window, tokens.size());
    size_t next = begin + 1;
    harness.Restart();
    harness.RunAll({tokens.begin() + static_cast<ptrdiff_t>(begin),
                    tokens.begin() + static_cast<ptrdiff_t>(end)},
                   kChunk, 0, [&](const std::vector<double>& logits) {
                     if (next == end) return;
                     nll += LogSumExp(logits) - logits[static_cast<size_t>(tokens[next++])];
                     ++scored;
                   });
  }
  return std::exp(nll / static_cast<double>(scored));
}

}  // namespace baton::golden
