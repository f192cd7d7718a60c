#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "common/status_macros.h"
#include "text/jinja/builtins.h"
#include "text/jinja/json.h"
#include "text/jinja/names.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"

namespace baton::jinja {
namespace {

using Filter = absl::StatusOr<Value> (*)(const Value& input, const Call& call, Budget* budget);

absl::StatusOr<Value> Length(const Value& input, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({}));
  BATON_RETURN_IF_ERROR(budget->Spend(1 + input.weight() / 64));
  size_t length = 0;
  if (input.IsText()) {
    length = CountCharacters(input.text().bytes());
  } else if (input.IsList()) {
    length = input.list().size();
  } else if (input.IsMap()) {
    length = input.map().size();
  } else if (!input.IsUndefined()) {
    return call.WrongKind(input);
  }
  return Value(static_cast<int64_t>(length));
}

absl::StatusOr<Value> ToTextFilter(const Value& input, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({}));
  BATON_RETURN_IF_ERROR(budget->SpendValue(input));
  return input.IsText() ? input : Value(input.ToText());
}

absl::StatusOr<Value> ToJsonFilter(const Value& input, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({"indent", "ensure_ascii"}));
  JsonStyle style;
  const Value* indent = call.Get(0, "indent");
  if (indent != nullptr && !indent->IsNone()) {
    BATON_ASSIGN_OR_RETURN(style.indent, call.IntegerOr(0, "indent", 0));
  }
  const Value* ascii = call.Get(1, "ensure_ascii");
  style.ascii_only = ascii != nullptr && ascii->Truthy();
  BATON_ASSIGN_OR_RETURN(Text json, ToJson(input, style, budget));
  return Value(std::move(json));
}

absl::StatusOr<Value> ToList(const Value& input, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({}));
  return ItemsOf(input, budget);
}

absl::StatusOr<Value> Items(const Value& input, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({}));
  if (input.IsUndefined()) return Value(List());
  if (!input.IsMap()) return call.WrongKind(input);
  BATON_RETURN_IF_ERROR(budget->Spend(input.map().size()));
  List pairs;
  for (const auto& entry : input.map()) {
    pairs.emplace_back(List{Value(entry.first), entry.second});
  }
  return Value(std::move(pairs));
}

absl::StatusOr<Value> DictSort(const Value& input, const Call& call, Budget* budget) {
  BATON_ASSIGN_OR_RETURN(const Value items, Items(input, call, budget));
  List pairs = items.list();
  std::stable_sort(pairs.begin(), pairs.end(), [](const Value& a, const Value& b) {
    return a.list()[0].text().bytes() < b.list()[0].text().bytes();
  });
  return Value(std::move(pairs));
}

absl::StatusOr<Value> FirstOrLast(const Value& input, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({}));
  BATON_ASSIGN_OR_RETURN(const Value items, ItemsOf(input, budget));
  if (items.list().empty()) return Value::MakeUndefined(call.name);
  return call.name == "first" ? items.list().front() : items.list().back();
}

absl::StatusOr<Value> Reverse(const Value& input, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({}));
  BATON_ASSIGN_OR_RETURN(const Value items, ItemsOf(input, budget));
  List reversed(items.list().rbegin(), items.list().rend());
  if (!input.IsText()) return Value(std::move(reversed));
  BATON_ASSIGN_OR_RETURN(Text joined, Join(reversed, Text(), budget));
  return Value(std::move(joined));
}

absl::StatusOr<Value> JoinFilter(const Value& input, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({"d"}));
  BATON_ASSIGN_OR_RETURN(const Text separator, call.TextOr(0, "d", Text()));
  BATON_ASSIGN_OR_RETURN(const Value items, ItemsOf(input, budget));
  BATON_ASSIGN_OR_RETURN(Text joined, Join(items.list(), separator, budget));
  return Value(std::move(joined));
}

absl::StatusOr<Value> Default(const Value& input, const Call& call, Budget*) {
  BATON_RETURN_IF_ERROR(call.Accept({"default_value", "boolean"}));
  const Value* falsy_too = call.Get(1, "boolean");
  const bool replaces =
      input.IsUndefined() || (falsy_too != nullptr && falsy_too->Truthy() && !input.Truthy());
  if (!replaces) return input;
  const Value* fallback = call.Get(0, "default_value");
  return fallback == nullptr ? Value(Text()) : *fallback;
}

// Filters that Python has as methods of texts.
absl::StatusOr<Value> AsMethod(const Value& input, const Call& call, Budget* budget) {
  Call method = call;
  if (call.name == "trim") method.name = "strip";
  BATON_RETURN_IF_ERROR(budget->SpendValue(input));
  return CallMethod(Value(input.ToText()), method, budget);
}

absl::StatusOr<Value> IndentFilter(const Value& input, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({"width", "first", "blank"}));
  if (!input.IsText()) return call.WrongKind(input);
  BATON_ASSIGN_OR_RETURN(const int64_t width, call.IntegerOr(0, "width", 4));
  const Value* first = call.Get(1, "first");
  const Value* blank = call.Get(2, "blank");
  BATON_ASSIGN_OR_RETURN(Text indented,
                         Indent(input.text(), width, first != nullptr && first->Truthy(),
                                blank != nullptr && blank->Truthy(), budget));
  return Value(std::move(indented));
}

absl::StatusOr<Value> ToInteger(const Value& input, const Call& call, Budget*) {
  BATON_RETURN_IF_ERROR(call.Accept({"default"}));
  BATON_ASSIGN_OR_RETURN(const int64_t fallback, call.IntegerOr(0, "default", 0));
  if (input.IsInteger()) return Value(input.integer());
  double number = std::nan("");
  if (input.IsFloat()) number = input.number();
  if (input.IsText()) {
    char* end = nullptr;
    const double parsed = std::strtod(input.text().bytes().c_str(), &end);
    if (end != input.text().bytes().c_str() && *end == '\0') number = parsed;
  }
  if (!(std::fabs(number) < 9e15)) return Value(fallback);  // NaN as well
  return Value(static_cast<int64_t>(number));
}

absl::StatusOr<Value> Absolute(const Value& input, const Call& call, Budget*) {
  BATON_RETURN_IF_ERROR(call.Accept({}));
  if (!input.IsNumber()) return call.WrongKind(input);
  return input.number() < 0 ? Negate(input) : absl::StatusOr<Value>(input);
}

// The call a select or map filter makes for each item: its arguments after the first `skip`.
Call InnerCall(const Call& call, size_t skip) {
  Call inner;
  inner.name = call.positional[skip].text().bytes();
  inner.positional.assign(call.positional.begin() + static_cast<ptrdiff_t>(skip) + 1,
                          call.positional.end());
  return inner;
}

// select, reject, selectattr, rejectattr
absl::StatusOr<Value> Select(const Value& input, const Call& call, Budget* budget) {
  const bool by_attribute = call.name == "selectattr" || call.name == "rejectattr";
  const bool keeps = call.name == "select" || call.name == "selectattr";
  const size_t skip = by_attribute ? 1 : 0;
  if (!call.named.empty() || call.positional.size() < skip ||
      !std::all_of(call.positional.begin(),
                   call.positional.begin() +
                       static_cast<ptrdiff_t>(std::min(skip + 1, call.positional.size())),
                   [](const Value& value) { return value.IsText(); })) {
    return CannotRender("'" + std::string(call.name) + "' with these arguments is not supported");
  }
  const bool tests = call.positional.size() > skip;
  const Call test = tests ? InnerCall(call, skip) : Call();
  if (tests && !IsKnownTest(test.name)) {
    return CannotRender("test '" + std::string(test.name) + "' is not supported");
  }
  BATON_ASSIGN_OR_RETURN(const Value items, ItemsOf(input, budget));
  List selected;
  for (const Value& item : items.list()) {
    Value subject = item;
    if (by_attribute) {
      BATON_ASSIGN_OR_RETURN(subject, GetAttribute(item, call.positional[0].text().bytes()));
    }
    bool passes = subject.Truthy();
    if (tests) {
      BATON_ASSIGN_OR_RETURN(passes, ApplyTest(subject, test, budget));
    }
    if (passes == keeps) selected.push_back(item);
  }
  return Value(std::move(selected));
}

absl::StatusOr<Value> MapFilter(const Value& input, const Call& call, Budget* budget) {
  BATON_ASSIGN_OR_RETURN(const Value items, ItemsOf(input, budget));
  List mapped;
  if (call.positional.empty()) {
    BATON_RETURN_IF_ERROR(call.Accept({"attribute", "default"}));
    const Value* attribute = call.Get(0, "attribute");
    if (attribute == nullptr || !attribute->IsText()) return call.WrongKind(input);
    const Value* fallback = call.Get(1, "default");
    for (const Value& item : items.list()) {
      BATON_ASSIGN_OR_RETURN(Value value, GetAttribute(item, attribute->text().bytes()));
      mapped.push_back(value.IsUndefined() && fallback != nullptr ? *fallback : value);
    }
    return Value(std::move(mapped));
  }
  if (!call.positional[0].IsText() || !IsKnownFilter(call.positional[0].text().bytes())) {
    return CannotRender("'map' with this filter is not supported");
  }
  Call filter = InnerCall(call, 0);
  filter.named = call.named;
  if (filter.name == "map") return CannotRender("'map' of 'map' is not supported");
  for (const Value& item : items.list()) {
    BATON_ASSIGN_OR_RETURN(mapped.emplace_back(), ApplyFilter(item, filter, budget));
  }
  return Value(std::move(mapped));
}

absl::StatusOr<Value> Unique(const Value& input, const Call& call, Budget* budget) {
  BATON_RETURN_IF_ERROR(call.Accept({}));
  BATON_ASSIGN_OR_RETURN(const Value items, ItemsOf(input, budget));
  List unique;
  for (const Value& item : items.list()) {
    BATON_RETURN_IF_ERROR(budget->Spend(unique.size() * (1 + item.weight() / 64)));
    const bool seen = std::any_of(unique.begin(), unique.end(),
                                  [&item](const Value& other) { return Equal(item, other); });
    if (!seen) unique.push_back(item);
  }
  return Value(std::move(unique));
}

absl::StatusOr<Value> Unchanged(const Value& input, const Call& call, Budget*) {
  BATON_RETURN_IF_ERROR(call.Accept({}));
  return input;
}

struct NamedFilter {
  std::string_view name;
  Filter filter;
};
constexpr NamedFilter kFilters[] = {
    {"abs", &Absolute},      {"capitalize", &AsMethod}, {"count", &Length},
    {"d", &Default},         {"default", &Default},     {"dictsort", &DictSort},
    {"first", &FirstOrLast}, {"indent", &IndentFilter}, {"int", &ToInteger},
    {"items", &Items},       {"join", &JoinFilter},     {"last", &FirstOrLast},
    {"length", &Length},     {"list", &ToList},         {"lower", &AsMethod},
    {"map", &MapFilter},     {"reject", &Select},       {"rejectattr", &Select},
    {"replace", &AsMethod},  {"reverse", &Reverse},     {"safe", &Unchanged},
    {"select", &Select},     {"selectattr", &Select},   {"string", &ToTextFilter},
    {"title", &AsMethod},    {"tojson", &ToJsonFilter}, {"trim", &AsMethod},
    {"unique", &Unique},     {"upper", &AsMethod},
};

const NamedFilter* FindFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [name](const NamedFilter& f) { return f.name == name; });
  return found == std::end(kFilters) ? nullptr : found;
}

}  // namespace

bool IsKnownFilter(std::string_view name) { return FindFilter(name) != nullptr; }

absl::StatusOr<Value> ApplyFilter(const Value& input, const Call& call, Budget* budget) {
  const NamedFilter* filter = FindFilter(call.name);
  if (filter == nullptr) {
    return CannotRender("filter '" + std::string(call.name) + "' is not supported");
  }
  BATON_RETURN_IF_ERROR(budget->Spend(1));
  return filter->filter(input, call, budget);
}

}  // namespace baton::jinja
