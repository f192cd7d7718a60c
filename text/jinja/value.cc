#include "text/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/check.h"

namespace baton::jinja {
namespace {

void AppendReprChar(char c, char quote, bool from_user, Text* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  if (c == '\\' || c == quote) {
    const char escaped[] = {'\\', c};
    out->Append(std::string_view(escaped, 2), from_user);
  } else if (c == '\n' || c == '\r' || c == '\t') {
    out->Append(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", from_user);
  } else if (byte < 0x20 || byte == 0x7F) {
    const char escaped[] = {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    out->Append(std::string_view(escaped, 4), from_user);
  } else {
    out->Append(std::string_view(&c, 1), from_user);
  }
}

void AppendRepr(const Value& value, Text* out);

void AppendTextRepr(const Text& text, Text* out) {
  const bool single =
      text.bytes().find('\'') == std::string::npos || text.bytes().find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  out->Append(std::string_view(&quote, 1), false);
  size_t at = 0;
  for (const Text::Run& run : text.runs()) {
    for (; at < run.end; ++at) AppendReprChar(text.bytes()[at], quote, run.from_user, out);
  }
  out->Append(std::string_view(&quote, 1), false);
}

void AppendListRepr(const List& list, Text* out) {
  out->Append("[", false);
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out->Append(", ", false);
    AppendRepr(list[i], out);
  }
  out->Append("]", false);
}

void AppendMapRepr(const Map& map, Text* out) {
  out->Append("{", false);
  for (size_t i = 0; i < map.size(); ++i) {
    if (i > 0) out->Append(", ", false);
    AppendTextRepr(map[i].first, out);
    out->Append(": ", false);
    AppendRepr(map[i].second, out);
  }
  out->Append("}", false);
}

void AppendRepr(const Value& value, Text* out) {
  if (value.IsText()) return AppendTextRepr(value.text(), out);
  if (value.IsList()) return AppendListRepr(value.list(), out);
  if (value.IsMap()) return AppendMapRepr(value.map(), out);
  out->Append(value.ToText());
}

bool EqualMaps(const Map& a, const Value& b) {
  if (a.size() != b.map().size()) return false;
  return std::all_of(a.begin(), a.end(), [&b](const std::pair<Text, Value>& entry) {
    const Value* other = b.Find(entry.first.bytes());
    return other != nullptr && Equal(entry.second, *other);
  });
}

}  // namespace

Value::Value() : data_(Undefined{}) {}
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;

Value::Value(Text text) : weight_(kNodeWeight + text.size()) {
  data_ = std::make_shared<const Text>(std::move(text));
}

Value::Value(List list) : depth_(1) {
  for (const Value& item : list) {
    depth_ = std::max(depth_, item.depth() + 1);
    weight_ += item.weight();
  }
  data_ = std::make_shared<const List>(std::move(list));
}

Value::Value(Map map) : depth_(1) {
  for (const auto& entry : map) {
    depth_ = std::max(depth_, entry.second.depth() + 1);
    weight_ += kNodeWeight + entry.first.size() + entry.second.weight();
  }
  data_ = std::make_shared<const Map>(std::move(map));
}

Value Value::MakeUndefined(std::string_view name) {
  Value value;
  value.data_ = Undefined{std::string(name)};
  return value;
}

bool Value::IsPlain() const {
  return AsNamespace() == nullptr && AsLoop() == nullptr && AsMacro() == nullptr;
}

template <typename T>
const T& Value::As() const {
  const T* held = std::get_if<T>(&data_);
  BATON_CHECK(held != nullptr);
  return *held;
}

const Text& Value::text() const { return *As<std::shared_ptr<const Text>>(); }
const List& Value::list() const { return *As<std::shared_ptr<const List>>(); }
const Map& Value::map() const { return *As<std::shared_ptr<const Map>>(); }
bool Value::boolean() const { return As<bool>(); }
int64_t Value::integer() const { return IsBool() ? (boolean() ? 1 : 0) : As<int64_t>(); }
double Value::number() const { return IsFloat() ? As<double>() : static_cast<double>(integer()); }
const std::string& Value::undefined_name() const { return As<Undefined>().name; }

Namespace* Value::AsNamespace() const {
  const auto* ns = std::get_if<Namespace*>(&data_);
  return ns == nullptr ? nullptr : *ns;
}

const Loop* Value::AsLoop() const {
  const auto* loop = std::get_if<const Loop*>(&data_);
  return loop == nullptr ? nullptr : *loop;
}

const MacroNode* Value::AsMacro() const {
  const auto* macro = std::get_if<const MacroNode*>(&data_);
  return macro == nullptr ? nullptr : *macro;
}

bool Value::Truthy() const {
  if (IsUndefined() || IsNone()) return false;
  if (IsNumber()) return number() != 0;
  if (IsText()) return !text().empty();
  if (IsList()) return !list().empty();
  if (IsMap()) return !map().empty();
  return true;
}

std::string_view Value::KindName() const {
  static constexpr std::string_view kNames[] = {"undefined", "none", "boolean", "integer",
                                                "float",     "text", "list",    "mapping",
                                                "namespace", "loop", "macro"};
  return kNames[data_.index()];
}

const Value* Value::Find(std::string_view key) const {
  if (!IsMap()) return nullptr;
  for (const auto& entry : map()) {
    if (entry.first.bytes() == key) return &entry.second;
  }
  return nullptr;
}

Text Value::ToText() const {
  if (IsText()) return text();
  Text out;
  if (IsNone()) out.Append("None", false);
  if (IsBool()) out.Append(boolean() ? "True" : "False", false);
  if (IsInt()) out.Append(std::to_string(integer()), false);
  if (IsFloat()) out.Append(FormatFloat(number()), false);
  if (IsList()) AppendListRepr(list(), &out);
  if (IsMap()) AppendMapRepr(map(), &out);
  return out;
}

bool Equal(const Value& a, const Value& b) {
  if (a.IsInteger() && b.IsInteger()) return a.integer() == b.integer();
  if (a.IsNumber() && b.IsNumber()) return a.number() == b.number();
  if (a.IsText() && b.IsText()) return a.text().bytes() == b.text().bytes();
  if (a.IsNone() || a.IsUndefined()) return a.KindName() == b.KindName();
  if (a.IsMap() && b.IsMap()) return EqualMaps(a.map(), b);
  if (a.IsList() && b.IsList()) {
    return std::equal(a.list().begin(), a.list().end(), b.list().begin(), b.list().end(), Equal);
  }
  return false;
}

std::string FormatFloat(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  const double magnitude = std::fabs(number);
  const bool fixed = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  char buffer[64];
  const auto result =
      std::to_chars(buffer, buffer + sizeof buffer, number,
                    fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, result.ptr);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace baton::jinja
