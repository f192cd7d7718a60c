// Names the subset knows. A template that uses another one is refused when it is parsed.
#ifndef BATON_TEXT_JINJA_NAMES_H_
#define BATON_TEXT_JINJA_NAMES_H_

#include <string_view>

namespace baton::jinja {

bool IsKnownFilter(std::string_view name);
bool IsKnownTest(std::string_view name);
bool IsKnownMethod(std::string_view name);
bool IsKnownFunction(std::string_view name);

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_NAMES_H_
