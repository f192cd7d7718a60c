// Cuts text into the pieces inside which BPE merges. Which cuts is named by the model file.
#ifndef BATON_TEXT_PRE_TOKENIZER_H_
#define BATON_TEXT_PRE_TOKENIZER_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

// Immutable; any number of threads may split at once.
class PreTokenizer {
 public:
  struct Options {
    bool jit = true;  // off: PCRE2's interpreter, which is also what a machine without JIT runs
  };
  // "gpt-2" or "smollm"; INVALID_ARGUMENT for any other name, an empty one included.
  static absl::StatusOr<PreTokenizer> Create(std::string_view name, Options options);
  static absl::StatusOr<PreTokenizer> Create(std::string_view name) {
    return Create(name, Options());
  }

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Pieces in order; together they are `text`, which is valid UTF-8 and outlives them. Nothing
  // recurses, and one match may not backtrack more than a constant number of times:
  // INVALID_ARGUMENT beyond.
  absl::StatusOr<std::vector<std::string_view>> Split(std::string_view text) const;

 private:
  class Stage;
  explicit PreTokenizer(std::vector<std::unique_ptr<Stage>> stages);

  std::vector<std::unique_ptr<Stage>> stages_;
};

}  // namespace baton

#endif  // BATON_TEXT_PRE_TOKENIZER_H_
