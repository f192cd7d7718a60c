// JSON to template values, for tests.
#ifndef BATON_TEXT_JSON_VALUE_H_
#define BATON_TEXT_JSON_VALUE_H_

#include <nlohmann/json.hpp>
#include <utility>

#include "text/jinja/value.h"

namespace baton {

// Text in it counts as written by a client.
inline jinja::Value ValueFromJson(const nlohmann::ordered_json& json) {
  if (json.is_null()) return jinja::Value::MakeNone();
  if (json.is_boolean()) return jinja::Value(json.get<bool>());
  if (json.is_number_integer()) return jinja::Value(json.get<int64_t>());
  if (json.is_number()) return jinja::Value(json.get<double>());
  if (json.is_string()) return jinja::Value::FromUser(json.get<std::string>());
  if (json.is_array()) {
    jinja::List list;
    for (const auto& item : json) list.push_back(ValueFromJson(item));
    return jinja::Value(std::move(list));
  }
  jinja::Map map;
  for (const auto& item : json.items()) {
    map.emplace_back(jinja::Text(item.key(), true), ValueFromJson(item.value()));
  }
  return jinja::Value(std::move(map));
}

}  // namespace baton

#endif  // BATON_TEXT_JSON_VALUE_H_
