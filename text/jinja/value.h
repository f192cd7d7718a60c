// Values of the template language. Immutable and shared, except namespaces and loops, which belong
// to a running interpreter and are only pointed to.
#ifndef BATON_TEXT_JINJA_VALUE_H_
#define BATON_TEXT_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/text.h"

namespace baton::jinja {

class Value;
struct Loop;       // interpreter.h
struct MacroNode;  // ast.h

using List = std::vector<Value>;
// In order of insertion; few entries, so a lookup walks them.
using Map = std::vector<std::pair<Text, Value>>;
struct Namespace;

class Value {
 public:
  static constexpr size_t kNodeWeight = 16;

  struct Undefined {
    std::string name;  // for errors
  };
  struct None {};

  Value();
  explicit Value(None none) : data_(none) {}
  explicit Value(bool flag) : data_(flag) {}
  explicit Value(int64_t number) : data_(number) {}
  explicit Value(double number) : data_(number) {}
  explicit Value(Text text);
  explicit Value(List list);
  explicit Value(Map map);
  explicit Value(Namespace* ns) : data_(ns) {}
  explicit Value(const Loop* loop) : data_(loop) {}
  explicit Value(const MacroNode* macro) : data_(macro) {}
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
  ~Value();
  static Value MakeUndefined(std::string_view name);
  static Value MakeNone() { return Value(None{}); }
  static Value Literal(std::string_view text) { return Value(Text(std::string(text), false)); }
  static Value FromUser(std::string_view text) { return Value(Text(std::string(text), true)); }

  bool IsUndefined() const { return std::holds_alternative<Undefined>(data_); }
  bool IsNone() const { return std::holds_alternative<None>(data_); }
  bool IsBool() const { return std::holds_alternative<bool>(data_); }
  bool IsInt() const { return std::holds_alternative<int64_t>(data_); }
  bool IsFloat() const { return std::holds_alternative<double>(data_); }
  bool IsText() const { return std::holds_alternative<std::shared_ptr<const Text>>(data_); }
  bool IsList() const { return std::holds_alternative<std::shared_ptr<const List>>(data_); }
  bool IsMap() const { return std::holds_alternative<std::shared_ptr<const Map>>(data_); }
  // True, 1 and 1.5 are numbers, as in Python.
  bool IsNumber() const { return IsBool() || IsInt() || IsFloat(); }
  bool IsInteger() const { return IsBool() || IsInt(); }
  // May be put into lists, mappings and namespaces. The others are pointers whose target may be
  // gone sooner, or could form a cycle.
  bool IsPlain() const;

  // Each requires the kind of its name.
  const Text& text() const;
  const List& list() const;
  const Map& map() const;
  bool boolean() const;
  int64_t integer() const;
  double number() const;
  const std::string& undefined_name() const;
  // nullptr when it is another kind.
  Namespace* AsNamespace() const;
  const Loop* AsLoop() const;
  const MacroNode* AsMacro() const;

  // Levels of lists and mappings inside, itself included: 0 for the others.
  int depth() const { return depth_; }
  // Bytes that writing the value out takes, roughly: shared parts count wherever they appear.
  size_t weight() const { return weight_; }

  bool Truthy() const;
  // "string", "list", ... for errors.
  std::string_view KindName() const;
  // Value at `key`, nullptr when this is no mapping or lacks it.
  const Value* Find(std::string_view key) const;
  // Text of None, True, 1.5, ['a'] as Python's str() writes it.
  Text ToText() const;

 private:
  template <typename T>
  const T& As() const;

  using Data = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                            std::shared_ptr<const List>, std::shared_ptr<const Map>, Namespace*,
                            const Loop*, const MacroNode*>;
  Data data_;
  int depth_ = 0;
  size_t weight_ = kNodeWeight;
};

struct Namespace {
  Map entries;
};

// As Python's ==: 1 == 1.0 == True, lists and mappings by content.
bool Equal(const Value& a, const Value& b);

// As Python's repr().
std::string FormatFloat(double number);

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_VALUE_H_
