#include "client/arguments.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>

namespace baton::client {
namespace {

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

template <typename T>
absl::StatusOr<T> ParseWhole(const std::string& flag, const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end) return Bad("--" + flag + ": not a number: " + text);
  return value;
}

absl::StatusOr<float> ParseFloat(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const float value = std::strtof(text.c_str(), &end);
  if (text.empty() || *end != '\0') return Bad("--" + flag + ": not a number: " + text);
  return value;
}

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

template <typename T>
absl::StatusOr<std::optional<T>> ParseOptional(const Arguments& args, const std::string& name) {
  if (!args.Has(name)) return std::optional<T>();
  const absl::StatusOr<T> value = ParseWhole<T>(name, args.Get(name));
  if (!value.ok()) return value.status();
  return std::optional<T>(*value);
}

}  // namespace

absl::StatusOr<Arguments> Arguments::Parse(const std::vector<std::string>& args,
                                           const std::set<std::string>& known,
                                           const std::set<std::string>& switches) {
  Arguments out;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].rfind("--", 0) != 0) return Bad("unexpected argument: " + args[i]);
    const size_t equals = args[i].find('=');
    const std::string name = args[i].substr(2, equals == std::string::npos ? equals : equals - 2);
    if (switches.contains(name) && equals == std::string::npos) {
      out.values_[name].push_back("true");
      continue;
    }
    if (!known.contains(name)) return Bad("unknown flag: --" + name);
    if (equals != std::string::npos) {
      out.values_[name].push_back(args[i].substr(equals + 1));
    } else if (i + 1 < args.size()) {
      out.values_[name].push_back(args[++i]);
    } else {
      return Bad("--" + name + ": needs a value");
    }
  }
  return out;
}

std::string Arguments::Get(const std::string& name, const std::string& otherwise) const {
  const auto found = values_.find(name);
  return found == values_.end() ? otherwise : found->second.back();
}

const std::vector<std::string>& Arguments::All(const std::string& name) const {
  static const std::vector<std::string> kNone;
  const auto found = values_.find(name);
  return found == values_.end() ? kNone : found->second;
}

absl::StatusOr<std::optional<int32_t>> Arguments::Int(const std::string& name) const {
  return ParseOptional<int32_t>(*this, name);
}

absl::StatusOr<std::optional<uint32_t>> Arguments::Count(const std::string& name) const {
  return ParseOptional<uint32_t>(*this, name);
}

absl::StatusOr<std::optional<uint64_t>> Arguments::Unsigned(const std::string& name) const {
  return ParseOptional<uint64_t>(*this, name);
}

absl::StatusOr<std::optional<float>> Arguments::Float(const std::string& name) const {
  if (!Has(name)) return std::optional<float>();
  const absl::StatusOr<float> value = ParseFloat(name, Get(name));
  if (!value.ok()) return value.status();
  return std::optional<float>(*value);
}

absl::StatusOr<std::vector<int32_t>> ParseIds(const std::string& flag, const std::string& text) {
  std::vector<int32_t> ids;
  for (const std::string& part : SplitAtCommas(text)) {
    const absl::StatusOr<int32_t> id = ParseWhole<int32_t>(flag, part);
    if (!id.ok()) return id.status();
    ids.push_back(*id);
  }
  return ids;
}

absl::StatusOr<std::vector<std::pair<int32_t, float>>> ParseBiases(const std::string& flag,
                                                                   const std::string& text) {
  std::vector<std::pair<int32_t, float>> biases;
  for (const std::string& part : SplitAtCommas(text)) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) return Bad("--" + flag + ": not ID=BIAS: " + part);
    const absl::StatusOr<int32_t> id = ParseWhole<int32_t>(flag, part.substr(0, equals));
    if (!id.ok()) return id.status();
    const absl::StatusOr<float> value = ParseFloat(flag, part.substr(equals + 1));
    if (!value.ok()) return value.status();
    biases.emplace_back(*id, *value);
  }
  return biases;
}

}  // namespace baton::client
