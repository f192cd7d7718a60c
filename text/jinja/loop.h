// The `loop` variable inside a `for`.
#ifndef BATON_TEXT_JINJA_LOOP_H_
#define BATON_TEXT_JINJA_LOOP_H_

#include <cstddef>
#include <string_view>

#include "text/jinja/value.h"

namespace baton::jinja {

struct Loop {
  const List* items;
  size_t index = 0;  // from 0

  // Undefined for a name that loops do not have.
  Value Attribute(std::string_view name) const;
};

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_LOOP_H_
