#include "text/jinja/loop.h"

#include <cstdint>

namespace baton::jinja {

Value Loop::Attribute(std::string_view name) const {
  const auto number = [](size_t n) { return Value(static_cast<int64_t>(n)); };
  const size_t length = items->size();
  if (name == "index") return number(index + 1);
  if (name == "index0") return number(index);
  if (name == "revindex") return number(length - index);
  if (name == "revindex0") return number(length - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == length);
  if (name == "length") return number(length);
  if (name == "depth") return number(1);  // it counts recursive loops, which are not supported
  if (name == "depth0") return number(0);
  if (name == "previtem" && index > 0) return (*items)[index - 1];
  if (name == "nextitem" && index + 1 < length) return (*items)[index + 1];
  return Value::MakeUndefined(name);
}

}  // namespace baton::jinja
