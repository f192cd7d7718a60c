#ifndef BATON_TEXT_JINJA_PARSER_H_
#define BATON_TEXT_JINJA_PARSER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/jinja/ast.h"

namespace baton::jinja {

// FAILED_PRECONDITION naming the line and the construct the subset does not have: a statement,
// filter, test, function, method, or nesting beyond kMaxDepth.
absl::StatusOr<std::shared_ptr<const Program>> Parse(std::string_view source);

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_PARSER_H_
