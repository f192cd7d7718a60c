#include "text/jinja/strings.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/status_macros.h"
#include "text/jinja/call.h"
#include "text/utf8.h"

namespace baton::jinja {
namespace {

// What Python's str.strip() strips.
bool IsWhiteSpace(char32_t c) {
  if (c <= 0x20) return (c >= 0x09 && c <= 0x0D) || c >= 0x1C;
  if (c == 0x85 || c == 0xA0 || c == 0x1680) return true;
  if (c >= 0x2000 && c <= 0x200A) return true;
  return c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Where the character before `end` begins.
size_t PreviousCharacter(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

bool Strips(std::string_view character, std::optional<std::string_view> characters) {
  if (!characters.has_value()) return IsWhiteSpace(FirstCodePoint(character).value);
  return characters->find(character) != std::string_view::npos;
}

char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool IsLetter(char c) { return Lower(c) >= 'a' && Lower(c) <= 'z'; }

}  // namespace

Text Strip(const Text& text, std::optional<std::string_view> characters, bool left, bool right) {
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  size_t end = bytes.size();
  while (left && begin < end) {
    const size_t length = FirstCodePoint(bytes.substr(begin)).bytes;
    if (!Strips(bytes.substr(begin, length), characters)) break;
    begin += length;
  }
  while (right && end > begin) {
    const size_t last = PreviousCharacter(bytes, end);
    if (!Strips(bytes.substr(last, end - last), characters)) break;
    end = last;
  }
  return text.Substr(begin, end);
}

List Split(const Text& text, std::string_view separator, int64_t max_splits) {
  List parts;
  size_t at = 0;
  for (size_t next;
       max_splits != 0 && (next = text.bytes().find(separator, at)) != std::string::npos;
       --max_splits) {
    parts.emplace_back(text.Substr(at, next));
    at = next + separator.size();
  }
  parts.emplace_back(text.Substr(at, text.size()));
  return parts;
}

List SplitAtSpaces(const Text& text) {
  const std::string_view bytes = text.bytes();
  List parts;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = FirstCodePoint(bytes.substr(at));
    if (IsWhiteSpace(c.value)) {
      if (at > begin) parts.emplace_back(text.Substr(begin, at));
      begin = at + c.bytes;
    }
    at += c.bytes;
  }
  if (begin < bytes.size()) parts.emplace_back(text.Substr(begin, bytes.size()));
  return parts;
}

List SplitLines(const Text& text) {
  List lines = Split(text, "\n", -1);
  if (lines.back().text().empty()) lines.pop_back();
  return lines;
}

absl::StatusOr<Text> Replace(const Text& text, std::string_view from, const Text& to,
                             int64_t max_count, Budget* budget) {
  const List parts = Split(text, from, max_count);
  const size_t count = parts.size() - 1;
  BATON_RETURN_IF_ERROR(budget->Spend(count));
  BATON_RETURN_IF_ERROR(budget->SpendText(text.size()));
  Text out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.Append(to);
    out.Append(parts[i].text());
    BATON_RETURN_IF_ERROR(budget->CheckText(out.size()));
  }
  BATON_RETURN_IF_ERROR(budget->SpendText(out.size()));
  return out;
}

absl::StatusOr<Text> Join(const List& items, const Text& separator, Budget* budget) {
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(separator);
    BATON_RETURN_IF_ERROR(budget->SpendText(separator.size() + items[i].weight()));
    if (items[i].IsText()) {
      out.Append(items[i].text());
    } else {
      out.Append(items[i].ToText());
    }
    BATON_RETURN_IF_ERROR(budget->CheckText(out.size()));
  }
  BATON_RETURN_IF_ERROR(budget->SpendText(out.size()));
  return out;
}

absl::StatusOr<Text> Indent(const Text& text, int64_t width, bool first, bool blank,
                            Budget* budget) {
  const List lines = Split(text, "\n", -1);
  if (width < 0 || width > 1000) return CannotRender("indent of more than 1000 is not supported");
  const std::string spaces(static_cast<size_t>(width), ' ');
  BATON_RETURN_IF_ERROR(budget->SpendText(text.size() + lines.size() * spaces.size()));
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n", false);
    const bool indents = i == 0 ? first : (blank || !lines[i].text().empty());
    if (indents) out.Append(spaces, false);
    out.Append(lines[i].text());
  }
  return out;
}

absl::StatusOr<Text> ChangeCase(const Text& text, Case to) {
  Text out;
  size_t at = 0;
  bool inside_word = false;
  for (const Text::Run& run : text.runs()) {
    std::string changed;
    for (; at < run.end; ++at) {
      const char c = text.bytes()[at];
      if (static_cast<unsigned char>(c) >= 0x80) {
        return CannotRender("changing the case of text outside ASCII is not supported");
      }
      const bool first = to == Case::kTitle ? !inside_word : at == 0;
      const bool upper = to == Case::kUpper || (to != Case::kLower && first);
      changed.push_back(upper ? Upper(c) : Lower(c));
      inside_word = IsLetter(c);
    }
    out.Append(changed, run.from_user);
  }
  return out;
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

List Characters(const Text& text) {
  List out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = FirstCodePoint(std::string_view(text.bytes()).substr(at)).bytes;
    out.emplace_back(text.Substr(at, at + length));
    at += length;
  }
  return out;
}

}  // namespace baton::jinja
