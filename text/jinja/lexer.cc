#include "text/jinja/lexer.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "text/utf8.h"

namespace baton::jinja {
namespace {

using Kind = Token::Kind;

bool IsNameStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }
bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out.push_back('\n');
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();  // one trailing newline is no output
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      const size_t tag = FindTag();
      const char kind = tag == std::string::npos ? '\0' : source_[tag + 1];
      AddText(tag == std::string::npos ? source_.size() : tag, kind);
      if (kind == '\0') break;
      if (kind == '#') {
        BATON_RETURN_IF_ERROR(SkipComment());
      } else {
        BATON_RETURN_IF_ERROR(ReadTag(kind == '%'));
      }
    }
    Add(Kind::kEnd, "end of template");
    return std::move(tokens_);
  }

 private:
  size_t FindTag() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] != '{') continue;
      if (source_[i + 1] == '%' || source_[i + 1] == '{' || source_[i + 1] == '#') return i;
    }
    return std::string::npos;
  }

  void Add(Kind kind, std::string value) { tokens_.push_back({kind, std::move(value), line_}); }

  void Advance(size_t count) {
    for (; count > 0 && at_ < source_.size(); --count, ++at_) line_ += source_[at_] == '\n';
  }

  char Peek(size_t ahead) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }

  // Text up to `end`, where a tag of `kind` begins; moves past the tag's opening characters.
  void AddText(size_t end, char kind) {
    size_t stop = end;
    const char sign = kind != '\0' && end + 2 < source_.size() ? source_[end + 2] : '\0';
    if (sign == '-') {
      while (stop > at_ && IsSpace(source_[stop - 1])) --stop;
    } else if (sign != '+' && (kind == '%' || kind == '#')) {
      stop = StripIndent(end);
    }
    if (stop > at_) Add(Kind::kText, source_.substr(at_, stop - at_));
    Advance(end - at_);
    if (kind != '\0') Advance(sign == '-' || sign == '+' ? 3 : 2);
  }

  // lstrip_blocks: where the spaces that begin the tag's line begin, if nothing else precedes it.
  size_t StripIndent(size_t tag) const {
    size_t begin = tag;
    while (begin > at_ && IsSpace(source_[begin - 1]) && source_[begin - 1] != '\n') --begin;
    const bool line_start =
        begin == 0 || source_[begin - 1] == '\n' || (begin == at_ && after_trimmed_newline_);
    return line_start ? begin : tag;
  }

  // Behind the closing characters of a tag; `sign` stood before them.
  void TrimAfterTag(char sign, bool trims_newline) {
    after_trimmed_newline_ = false;
    if (sign == '-') {
      size_t end = at_;
      while (end < source_.size() && IsSpace(source_[end])) ++end;
      after_trimmed_newline_ = end > at_ && source_[end - 1] == '\n';
      Advance(end - at_);
    } else if (trims_newline && sign != '+' && Peek(0) == '\n') {
      after_trimmed_newline_ = true;
      Advance(1);
    }
  }

  absl::Status SkipComment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return TemplateError(line_, "comment without '#}'");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    Advance(end + 2 - at_);
    TrimAfterTag(sign, true);
    return absl::OkStatus();
  }

  absl::Status ReadTag(bool block) {
    Add(block ? Kind::kOpenBlock : Kind::kOpenOutput, block ? "{%" : "{{");
    const int opened = line_;
    brackets_ = 0;
    for (;;) {
      while (at_ < source_.size() && IsSpace(source_[at_])) Advance(1);
      if (at_ >= source_.size()) return TemplateError(opened, "tag without an end");
      if (TryClose(block)) return absl::OkStatus();
      BATON_RETURN_IF_ERROR(ReadToken());
    }
  }

  bool TryClose(bool block) {
    if (brackets_ > 0) return false;
    const char first = block ? '%' : '}';
    const bool has_sign = Peek(0) == '-' || Peek(0) == '+';
    const size_t skip = has_sign ? 1 : 0;
    if (Peek(skip) != first || Peek(skip + 1) != '}') return false;
    const char sign = has_sign ? Peek(0) : '\0';
    Add(block ? Kind::kCloseBlock : Kind::kCloseOutput, block ? "%}" : "}}");
    Advance(skip + 2);
    TrimAfterTag(sign, block);
    return true;
  }

  absl::Status ReadToken() {
    const char c = Peek(0);
    if (c == '\'' || c == '"') return ReadString(c);
    if (IsDigit(c)) return ReadNumber();
    if (IsNameStart(c)) {
      size_t length = 1;
      while (IsNamePart(Peek(length))) ++length;
      Add(Kind::kName, source_.substr(at_, length));
      Advance(length);
      return absl::OkStatus();
    }
    return ReadOperator();
  }

  absl::Status ReadNumber() {
    size_t length = 1;
    bool is_float = false;
    while (IsDigit(Peek(length)) || (Peek(length) == '_' && IsDigit(Peek(length + 1)))) ++length;
    if (Peek(length) == '.' && IsDigit(Peek(length + 1))) {
      is_float = true;
      for (++length; IsDigit(Peek(length));) ++length;
    }
    const size_t sign = Peek(length + 1) == '-' || Peek(length + 1) == '+' ? 1 : 0;
    if ((Peek(length) == 'e' || Peek(length) == 'E') && IsDigit(Peek(length + 1 + sign))) {
      is_float = true;
      for (length += 2 + sign; IsDigit(Peek(length));) ++length;
    }
    std::string digits = source_.substr(at_, length);
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    Add(is_float ? Kind::kFloat : Kind::kInteger, digits);
    Advance(length);
    return absl::OkStatus();
  }

  absl::Status ReadOperator() {
    static constexpr std::string_view kOperators[] = {
        "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
        ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", ",", ":", ".", "|"};
    const std::string_view rest = std::string_view(source_).substr(at_);
    for (const std::string_view op : kOperators) {
      if (rest.substr(0, op.size()) != op) continue;
      if (op == "(" || op == "[" || op == "{") ++brackets_;
      if (op == ")" || op == "]" || op == "}") --brackets_;
      if (brackets_ < 0) return TemplateError(line_, "'" + std::string(op) + "' closes nothing");
      Add(Kind::kOperator, std::string(op));
      Advance(op.size());
      return absl::OkStatus();
    }
    return TemplateError(line_, "character '" + std::string(rest.substr(0, 1)) + "' in a tag");
  }

  absl::Status ReadString(char quote) {
    const int opened = line_;
    std::string value;
    for (Advance(1); Peek(0) != quote; Advance(1)) {
      if (at_ >= source_.size()) return TemplateError(opened, "string without an end");
      if (Peek(0) != '\\') {
        value.push_back(Peek(0));
        continue;
      }
      Advance(1);
      BATON_RETURN_IF_ERROR(ReadEscape(&value));
    }
    Advance(1);
    tokens_.push_back({Kind::kString, std::move(value), opened});
    return absl::OkStatus();
  }

  // At the character after the backslash; leaves at the last character of the escape.
  absl::Status ReadEscape(std::string* value) {
    static constexpr std::string_view kCodes = "ntrabfv0\\'\"";
    static constexpr std::string_view kMeanings("\n\t\r\a\b\f\v\0\\'\"", 11);
    const char c = Peek(0);
    if (c == '\n') return absl::OkStatus();  // the line goes on
    if (const size_t code = kCodes.find(c); code != std::string_view::npos) {
      value->push_back(kMeanings[code]);
      return absl::OkStatus();
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      value->push_back('\\');
      value->push_back(c);
      return absl::OkStatus();
    }
    return ReadCodePoint(digits, value);
  }

  absl::Status ReadCodePoint(size_t digits, std::string* value) {
    uint32_t code = 0;
    for (size_t i = 1; i <= digits; ++i) {
      const char c = Peek(i);
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0) {
        return TemplateError(line_, "escape in a string is cut short");
      }
      const int lower = std::tolower(static_cast<unsigned char>(c));
      code = code * 16 + static_cast<uint32_t>(IsDigit(c) ? c - '0' : lower - 'a' + 10);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return TemplateError(line_, "escape in a string is no character");
    }
    AppendUtf8(code, value);
    Advance(digits);
    return absl::OkStatus();
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  int brackets_ = 0;                    // open inside the current tag
  bool after_trimmed_newline_ = false;  // at_ begins a line although the newline is gone
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(NormalizeNewlines(source)).Run();
}

absl::Status TemplateError(int line, std::string_view what) {
  return absl::FailedPreconditionError("chat template line " + std::to_string(line) + ": " +
                                       std::string(what));
}

}  // namespace baton::jinja
