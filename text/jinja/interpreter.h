#ifndef BATON_TEXT_JINJA_INTERPRETER_H_
#define BATON_TEXT_JINJA_INTERPRETER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace baton::jinja {

struct RenderLimits {
  uint64_t max_steps;
  size_t max_text_bytes;
};

// INVALID_ARGUMENT when the template refuses (raise_exception) or a limit is passed,
// FAILED_PRECONDITION with the line when it cannot be rendered. All text in `variables` is valid
// UTF-8.
absl::StatusOr<Text> Render(const Program& program, const Map& variables, int64_t now_unix_s,
                            const RenderLimits& limits);

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_INTERPRETER_H_
