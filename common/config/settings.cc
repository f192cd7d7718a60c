#include "common/config/settings.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"

namespace baton::config {
namespace {

using nlohmann::json;

constexpr size_t kMaxFileBytes = 1 << 20;

absl::Status Wrong(const std::string& text) { return absl::InvalidArgumentError(text); }

std::optional<int64_t> ParseInteger(const std::string& text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return value;
}

std::string Join(const std::vector<std::string>& parts, const std::string& separator) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : separator) + part;
  return out;
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) out.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

std::string LimitOf(const Option& option) {
  if (option.kind == Option::Kind::kInteger) {
    return "must be a whole number from " + std::to_string(option.least) + " to " +
           std::to_string(option.most);
  }
  if (!option.choices.empty()) return "must be one of " + Join(option.choices, ", ");
  return option.kind == Option::Kind::kList ? "must be an array of text without commas"
                                            : "must be text";
}

bool Takes(const Option& option, const std::string& value) {
  if (option.kind == Option::Kind::kInteger) {
    const std::optional<int64_t> number = ParseInteger(value);
    return number.has_value() && *number >= option.least && *number <= option.most;
  }
  return option.choices.empty() ||
         std::find(option.choices.begin(), option.choices.end(), value) != option.choices.end();
}

// A value of the file as the command line writes it; absent: it has the wrong type.
std::optional<std::string> FromJson(const Option& option, const json& value) {
  switch (option.kind) {
    case Option::Kind::kInteger:
      if (!value.is_number_integer()) return std::nullopt;
      return value.dump();
    case Option::Kind::kText:
      if (!value.is_string()) return std::nullopt;
      return value.get<std::string>();
    case Option::Kind::kSwitch:
      return std::nullopt;
    case Option::Kind::kList:
      break;
  }
  if (!value.is_array()) return std::nullopt;
  std::vector<std::string> entries;
  for (const json& entry : value) {
    if (!entry.is_string() || entry.get<std::string>().find(',') != std::string::npos) {
      return std::nullopt;
    }
    entries.push_back(entry.get<std::string>());
  }
  return Join(entries, ",");
}

// nlohmann's last of two equal keys would win without a word.
absl::Status ParseObject(const std::string& path, const std::string& text, json& object) {
  std::set<std::string> keys;
  std::string repeated;
  const auto note_key = [&](int depth, json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::key && depth == 1 &&
        !keys.insert(parsed.get<std::string>()).second) {
      repeated = parsed.get<std::string>();
    }
    return true;
  };
  try {
    object = json::parse(text, note_key, true, true);
  } catch (const json::parse_error& error) {
    const size_t at = std::min(error.byte, text.size());
    const auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    return Wrong(path + ": line " + std::to_string(line) + ": is not JSON");
  }
  if (!object.is_object()) {
    return Wrong(path + ": must be one JSON object, {\"option\": value, ...}");
  }
  if (!repeated.empty()) return Wrong(path + ": " + repeated + ": is given twice");
  return absl::OkStatus();
}

}  // namespace

Option Text(std::string name, std::string otherwise, std::string help) {
  Option option;
  option.name = std::move(name);
  option.otherwise = std::move(otherwise);
  option.help = std::move(help);
  return option;
}

Option Choice(std::string name, std::vector<std::string> choices, std::string help) {
  Option option = Text(std::move(name), choices.front(), std::move(help));
  option.choices = std::move(choices);
  return option;
}

Option Integer(std::string name, int64_t otherwise, int64_t least, int64_t most, std::string help) {
  Option option = Text(std::move(name), std::to_string(otherwise), std::move(help));
  option.kind = Option::Kind::kInteger;
  option.least = least;
  option.most = most;
  return option;
}

Option List(std::string name, std::string help) {
  Option option = Text(std::move(name), "", std::move(help));
  option.kind = Option::Kind::kList;
  return option;
}

Option Switch(std::string name, std::string help) {
  Option option = Text(std::move(name), "", std::move(help));
  option.kind = Option::Kind::kSwitch;
  option.in_file = false;
  return option;
}

Settings::Settings(std::vector<Option> table) : table_(std::move(table)) {}

const Option* Settings::Find(const std::string& name) const {
  const auto found = std::find_if(table_.begin(), table_.end(),
                                  [&](const Option& option) { return option.name == name; });
  return found == table_.end() ? nullptr : &*found;
}

absl::Status Settings::TakeArgument(const Option& option, const std::string& value) {
  const std::string where = "--" + option.name;
  if (!Takes(option, value)) return Wrong(where + " is " + value + "; " + LimitOf(option));
  given_[option.name] = {value, where};
  return absl::OkStatus();
}

absl::Status Settings::TakeArguments(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--") || argument.size() == 2) {
      return Wrong("unexpected argument: " + argument);
    }
    const size_t equals = argument.find('=');
    const bool joined = equals != std::string::npos;
    std::string name = argument.substr(2, joined ? equals - 2 : equals);
    std::replace(name.begin(), name.end(), '_', '-');
    const Option* const option = Find(name);
    if (option == nullptr) return Wrong("unknown flag: --" + name);
    const bool is_switch = option->kind == Option::Kind::kSwitch;
    if (is_switch && joined) return Wrong("--" + name + ": takes no value");
    if (!is_switch && !joined && i + 1 == arguments.size()) {
      return Wrong("--" + name + ": needs a value");
    }
    std::string value = "true";
    if (!is_switch) value = joined ? argument.substr(equals + 1) : arguments[++i];
    BATON_RETURN_IF_ERROR(TakeArgument(*option, value));
  }
  return absl::OkStatus();
}

absl::Status Settings::TakeFileText(const std::string& path, const std::string& text) {
  json object;
  BATON_RETURN_IF_ERROR(ParseObject(path, text, object));
  for (const auto& [name, value] : object.items()) {
    const Option* const option = Find(name);
    if (option == nullptr || !option->in_file) {
      return Wrong(path + ": " + name + ": unknown key");
    }
    const std::optional<std::string> written = FromJson(*option, value);
    if (!written.has_value() || !Takes(*option, *written)) {
      return Wrong(path + ": " + name + " is " +
                   value.dump(-1, ' ', true, json::error_handler_t::replace) + "; " +
                   LimitOf(*option));
    }
    given_.try_emplace(name, Given{*written, path + ": " + name});
  }
  return absl::OkStatus();
}

absl::Status Settings::TakeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) return Wrong(path + ": cannot be read");
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    return Wrong(path + ": is larger than " + std::to_string(kMaxFileBytes) + " bytes");
  }
  return TakeFileText(path, text);
}

const std::string& Settings::Text(const std::string& name) const {
  const auto found = given_.find(name);
  if (found != given_.end()) return found->second.value;
  const Option* const option = Find(name);
  BATON_CHECK(option != nullptr);
  return option->otherwise;
}

int64_t Settings::Integer(const std::string& name) const {
  return ParseInteger(Text(name)).value_or(0);
}

std::vector<std::string> Settings::List(const std::string& name) const { return Split(Text(name)); }

std::string Settings::Where(const std::string& name) const {
  const auto found = given_.find(name);
  return found == given_.end() ? "--" + name : found->second.where;
}

absl::Status Settings::Bad(const std::string& name, const std::string& limit) const {
  const std::string& value = Text(name);
  return Wrong(Where(name) + " is " + (value.empty() ? "empty" : value) + "; " + limit);
}

std::string Settings::ToJson() const {
  std::string out = "{";
  for (const Option& option : table_) {
    if (!option.in_file) continue;
    json value = Text(option.name);
    if (option.kind == Option::Kind::kInteger) value = Integer(option.name);
    if (option.kind == Option::Kind::kList) value = List(option.name);
    out += (out.size() > 1 ? ",\n  " : "\n  ") + json(option.name).dump() + ": " +
           value.dump(-1, ' ', true, json::error_handler_t::replace);
  }
  return out + "\n}\n";
}

std::string Settings::Usage() const {
  std::string out;
  for (const Option& option : table_) {
    out += "  --" + option.name + "  " + option.help;
    if (!option.choices.empty()) out += ": " + Join(option.choices, ", ");
    if (!option.otherwise.empty()) out += " (default " + option.otherwise + ")";
    out += "\n";
  }
  return out;
}

}  // namespace baton::config
