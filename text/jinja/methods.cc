#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/status_macros.h"
#include "text/jinja/builtins.h"
#include "text/jinja/names.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"

namespace baton::jinja {
namespace {

using Method = absl::StatusOr<Value> (*)(const Value& object, const Call& call, Budget* budget);

absl::StatusOr<Value> StartsOrEndsWith(const Value& object, const Call& call, Budget*) {
  BATON_RETURN_IF_ERROR(call.Accept({"affix"}));
  const Value* affix = call.Get(0, "affix");
  if (affix == nullptr) return CannotRender("'" + std::string(call.name) + "' without argument");
  const std::string& bytes = object.text().bytes();
  const bool start = call.name == "startswith";
  const auto matches = [&](const Value& value) {
    const std::string& part = value.text().bytes();
    if (part.size() > bytes.size()) return false;
    return bytes.compare(start ? 0 : bytes.size() - part.size(), part.size(), part) == 0;
  };
  if (affix->IsText()) return Value(matches(*affix));
  if (!affix->IsList()) return call.WrongKind(*affix);
  for (const Value& item : affix->list()) {
    if (!item.IsText()) return call.WrongKind(item);
    if (matches(item)) return Value(true);
  }
  return Value(false);
}

absl::StatusOr<Value> StripMethod(const Value& object, const Call& call, Budget*) {
  BATON_RETURN_IF_ERROR(call.Accept({"chars"}));
  std::optional<std::string_view> characters;
  const Value* argument = call.Get(0, "chars");
  if (argument != nullptr && !argument->IsNone()) {
    if (!argument->IsText()) return call.WrongKind(*argument);
    characters = argument->text().bytes();
  }
  return Value(Strip(object.text(), characters, call.name != "rstrip", call.name != "lstrip"));
}

absl::StatusOr<Value> SplitMethod(const Value& object, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({"sep", "maxsplit"}));
  BATON_ASSIGN_OR_RETURN(const int64_t max_splits, call.IntegerOr(1, "maxsplit", -1));
  BATON_RETURN_IF_ERROR(budget->Spend(object.text().size()));
  const Value* separator = call.Get(0, "sep");
  if (separator == nullptr || separator->IsNone()) {
    if (max_splits >= 0) return CannotRender("split at spaces with a maximum is not supported");
    return Value(SplitAtSpaces(object.text()));
  }
  if (!separator->IsText() || separator->text().empty()) return call.WrongKind(*separator);
  return Value(Split(object.text(), separator->text().bytes(), max_splits));
}

absl::StatusOr<Value> SplitLinesMethod(const Value& object, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({}));
  BATON_RETURN_IF_ERROR(budget->Spend(object.text().size()));
  return Value(SplitLines(object.text()));
}

absl::StatusOr<Value> ReplaceMethod(const Value& object, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({"old", "new", "count"}));
  const Value* from = call.Get(0, "old");
  const Value* to = call.Get(1, "new");
  if (from == nullptr || to == nullptr) return CannotRender("'replace' needs two arguments");
  if (!from->IsText() || from->text().empty()) return call.WrongKind(*from);
  if (!to->IsText()) return call.WrongKind(*to);
  BATON_ASSIGN_OR_RETURN(const int64_t count, call.IntegerOr(2, "count", -1));
  BATON_ASSIGN_OR_RETURN(Text replaced,
                         Replace(object.text(), from->text().bytes(), to->text(), count, budget));
  return Value(std::move(replaced));
}

absl::StatusOr<Value> CaseMethod(const Value& object, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({}));
  BATON_RETURN_IF_ERROR(budget->SpendText(object.text().size()));
  const Case to = call.name == "upper"   ? Case::kUpper
                  : call.name == "lower" ? Case::kLower
                  : call.name == "title" ? Case::kTitle
                                         : Case::kCapitalize;
  BATON_ASSIGN_OR_RETURN(Text changed, ChangeCase(object.text(), to));
  return Value(std::move(changed));
}

absl::StatusOr<Value> JoinMethod(const Value& object, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({"iterable"}));
  const Value* argument = call.Get(0, "iterable");
  if (argument == nullptr) return CannotRender("'join' without argument");
  BATON_ASSIGN_OR_RETURN(const Value items, ItemsOf(*argument, budget));
  BATON_ASSIGN_OR_RETURN(Text joined, Join(items.list(), object.text(), budget));
  return Value(std::move(joined));
}

absl::StatusOr<Value> FindMethod(const Value& object, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({"sub"}));
  BATON_RETURN_IF_ERROR(budget->SpendText(object.text().size()));
  const Value* part = call.Get(0, "sub");
  if (part == nullptr || !part->IsText()) return CannotRender("'find' needs a text");
  const std::string_view bytes = object.text().bytes();
  const size_t at = bytes.find(part->text().bytes());
  if (at == std::string_view::npos) return Value(int64_t{-1});
  return Value(static_cast<int64_t>(CountCharacters(bytes.substr(0, at))));
}

absl::StatusOr<Value> MapParts(const Value& object, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({}));
  BATON_RETURN_IF_ERROR(budget->Spend(object.map().size()));
  List parts;
  for (const auto& entry : object.map()) {
    if (call.name == "keys") {
      parts.emplace_back(entry.first);
    } else if (call.name == "values") {
      parts.push_back(entry.second);
    } else {
      parts.emplace_back(List{Value(entry.first), entry.second});
    }
  }
  return Value(std::move(parts));
}

absl::StatusOr<Value> Get(const Value& object, const Call& call, Budget*) {
  BATON_RETURN_IF_ERROR(call.Accept({"key", "default"}));
  const Value* key = call.Get(0, "key");
  const Value* fallback = call.Get(1, "default");
  const Value* found = key != nullptr && key->IsText() ? object.Find(key->text().bytes()) : nullptr;
  if (found != nullptr) return *found;
  return fallback == nullptr ? Value::MakeNone() : *fallback;
}

struct NamedMethod {
  std::string_view name;
  Method method;
};
constexpr NamedMethod kTextMethods[] = {
    {"capitalize", &CaseMethod},
    {"endswith", &StartsOrEndsWith},
    {"find", &FindMethod},
    {"join", &JoinMethod},
    {"lower", &CaseMethod},
    {"lstrip", &StripMethod},
    {"replace", &ReplaceMethod},
    {"rstrip", &StripMethod},
    {"split", &SplitMethod},
    {"splitlines", &SplitLinesMethod},
    {"startswith", &StartsOrEndsWith},
    {"strip", &StripMethod},
    {"title", &CaseMethod},
    {"upper", &CaseMethod},
};
constexpr NamedMethod kMapMethods[] = {
    {"get", &Get}, {"items", &MapParts}, {"keys", &MapParts}, {"values", &MapParts}};

template <typename Methods>
Method FindIn(const Methods& methods, std::string_view name) {
  const auto found = std::find_if(std::begin(methods), std::end(methods),
                                  [name](const NamedMethod& m) { return m.name == name; });
  return found == std::end(methods) ? nullptr : found->method;
}

}  // namespace

bool IsKnownMethod(std::string_view name) {
  return FindIn(kTextMethods, name) != nullptr || FindIn(kMapMethods, name) != nullptr;
}

absl::StatusOr<Value> CallMethod(const Value& object, const Call& call, Budget* budget) {
  Method method = nullptr;
  if (object.IsText()) method = FindIn(kTextMethods, call.name);
  if (object.IsMap()) method = FindIn(kMapMethods, call.name);
  if (method == nullptr) return call.WrongKind(object);
  BATON_RETURN_IF_ERROR(budget->Spend(1));
  return method(object, call, budget);
}

}  // namespace baton::jinja
