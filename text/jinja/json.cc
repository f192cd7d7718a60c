#include "text/jinja/json.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

#include "common/status_macros.h"
#include "text/jinja/call.h"
#include "text/utf8.h"

namespace baton::jinja {
namespace {

void AppendEscape(uint32_t unit, std::string* out) {
  char escaped[8];
  std::snprintf(escaped, sizeof escaped, "\\u%04x", unit & 0xFFFF);
  *out += escaped;
}

void AppendEscapedCodePoint(char32_t c, std::string* out) {
  if (c < 0x10000) return AppendEscape(c, out);
  AppendEscape(0xD800 + ((c - 0x10000) >> 10), out);
  AppendEscape(0xDC00 + ((c - 0x10000) & 0x3FF), out);
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget* budget) : style_(style), budget_(*budget) {}

  absl::Status Write(const Value& value, int level);
  Text& text() { return out_; }

 private:
  void WriteText(const Text& text);
  absl::Status WriteList(const List& list, int level);
  absl::Status WriteMap(const Map& map, int level);
  void Structure(std::string_view bytes) { out_.Append(bytes, false); }
  // What stands before the first or next item, or before the end.
  absl::Status NewLine(int level);
  std::string_view ItemSeparator() const { return style_.indent.has_value() ? "," : ", "; }

  const JsonStyle& style_;
  Budget& budget_;
  Text out_;
};

void JsonWriter::WriteText(const Text& text) {
  static constexpr std::string_view kPlain = "\"\\\n\r\t\b\f";
  static constexpr std::string_view kCodes = "\"\\nrtbf";
  Structure("\"");
  size_t at = 0;
  for (const Text::Run& run : text.runs()) {
    std::string escaped;
    while (at < run.end) {
      const char c = text.bytes()[at];
      const auto byte = static_cast<unsigned char>(c);
      size_t length = 1;
      if (const size_t code = kPlain.find(c); code != std::string_view::npos) {
        escaped += '\\';
        escaped += kCodes[code];
      } else if (byte < 0x20) {
        AppendEscape(byte, &escaped);
      } else if (byte >= 0x80 && style_.ascii_only) {
        const CodePoint point = FirstCodePoint(std::string_view(text.bytes()).substr(at));
        AppendEscapedCodePoint(point.value, &escaped);
        length = point.bytes;
      } else {
        escaped += c;
      }
      at += length;
    }
    out_.Append(escaped, run.from_user);
  }
  Structure("\"");
}

absl::Status JsonWriter::NewLine(int level) {
  if (!style_.indent.has_value()) return absl::OkStatus();
  const std::string spaces(static_cast<size_t>(*style_.indent) * static_cast<size_t>(level), ' ');
  Structure("\n");
  Structure(spaces);
  return budget_.SpendText(spaces.size());
}

absl::Status JsonWriter::WriteList(const List& list, int level) {
  Structure("[");
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) Structure(ItemSeparator());
    BATON_RETURN_IF_ERROR(NewLine(level + 1));
    BATON_RETURN_IF_ERROR(Write(list[i], level + 1));
  }
  if (!list.empty()) BATON_RETURN_IF_ERROR(NewLine(level));
  Structure("]");
  return absl::OkStatus();
}

absl::Status JsonWriter::WriteMap(const Map& map, int level) {
  Structure("{");
  for (size_t i = 0; i < map.size(); ++i) {
    if (i > 0) Structure(ItemSeparator());
    BATON_RETURN_IF_ERROR(NewLine(level + 1));
    WriteText(map[i].first);
    Structure(": ");
    BATON_RETURN_IF_ERROR(Write(map[i].second, level + 1));
  }
  if (!map.empty()) BATON_RETURN_IF_ERROR(NewLine(level));
  Structure("}");
  return absl::OkStatus();
}

// Recurses as deep as the value, which Budget bounds.
absl::Status JsonWriter::Write(const Value& value, int level) {
  if (value.IsList()) return WriteList(value.list(), level);
  if (value.IsMap()) return WriteMap(value.map(), level);
  if (value.IsText()) {
    WriteText(value.text());
  } else if (value.IsNone()) {
    Structure("null");
  } else if (value.IsBool()) {
    Structure(value.boolean() ? "true" : "false");
  } else if (value.IsFloat() && !std::isfinite(value.number())) {
    Structure(std::isnan(value.number()) ? "NaN" : value.number() > 0 ? "Infinity" : "-Infinity");
  } else if (value.IsNumber()) {
    Structure(value.ToText().bytes());
  } else {
    return CannotRender("tojson of " + std::string(value.KindName()) + " is not possible");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Text> ToJson(const Value& value, const JsonStyle& style, Budget* budget) {
  if (style.indent.has_value() && (*style.indent < 0 || *style.indent > 16)) {
    return CannotRender("tojson with an indent outside [0, 16] is not supported");
  }
  BATON_RETURN_IF_ERROR(budget->SpendValue(value));
  JsonWriter writer(style, budget);
  BATON_RETURN_IF_ERROR(writer.Write(value, 0));
  BATON_RETURN_IF_ERROR(budget->SpendText(writer.text().size()));
  return std::move(writer.text());
}

}  // namespace baton::jinja
