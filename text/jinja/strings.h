// Text operations that keep track of where each byte came from.
#ifndef BATON_TEXT_JINJA_STRINGS_H_
#define BATON_TEXT_JINJA_STRINGS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/jinja/budget.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace baton::jinja {

// Which ends of a text to strip of characters in `characters`; nullopt: of white space.
Text Strip(const Text& text, std::optional<std::string_view> characters, bool left, bool right);

// At most `max_splits` times, all when negative. `separator` is not empty.
List Split(const Text& text, std::string_view separator, int64_t max_splits);
// At runs of white space, none at the ends.
List SplitAtSpaces(const Text& text);
List SplitLines(const Text& text);

// `from` is not empty.
absl::StatusOr<Text> Replace(const Text& text, std::string_view from, const Text& to,
                             int64_t max_count, Budget* budget);
absl::StatusOr<Text> Join(const List& items, const Text& separator, Budget* budget);
// Every line but the first (and blank ones) begins with `width` spaces.
absl::StatusOr<Text> Indent(const Text& text, int64_t width, bool first, bool blank,
                            Budget* budget);

enum class Case { kUpper, kLower, kTitle, kCapitalize };
// FAILED_PRECONDITION for letters outside ASCII: their cases need tables this subset lacks.
absl::StatusOr<Text> ChangeCase(const Text& text, Case to);

// Characters, not bytes. `text` is valid UTF-8.
size_t CountCharacters(std::string_view text);
List Characters(const Text& text);

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_STRINGS_H_
