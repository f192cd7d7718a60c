// Flags of the subcommands: repeatable, written with dashes, unknown ones refused.
#ifndef BATON_CLIENT_ARGUMENTS_H_
#define BATON_CLIENT_ARGUMENTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton::client {

class Arguments {
 public:
  // `known` take a value ("--name value" or "--name=value"), `switches` do not. A value may begin
  // with a dash. INVALID_ARGUMENT names the argument.
  static absl::StatusOr<Arguments> Parse(const std::vector<std::string>& args,
                                         const std::set<std::string>& known,
                                         const std::set<std::string>& switches);

  bool Has(const std::string& name) const { return values_.contains(name); }
  // The last one given.
  std::string Get(const std::string& name, const std::string& otherwise = "") const;
  const std::vector<std::string>& All(const std::string& name) const;

  // Absent: not given. INVALID_ARGUMENT: not a number of the type.
  absl::StatusOr<std::optional<int32_t>> Int(const std::string& name) const;
  absl::StatusOr<std::optional<uint32_t>> Count(const std::string& name) const;
  absl::StatusOr<std::optional<uint64_t>> Unsigned(const std::string& name) const;
  // Takes nan and inf too: the server decides what it accepts.
  absl::StatusOr<std::optional<float>> Float(const std::string& name) const;

 private:
  std::map<std::string, std::vector<std::string>> values_;
};

// "1,2,3"; INVALID_ARGUMENT names `flag`.
absl::StatusOr<std::vector<int32_t>> ParseIds(const std::string& flag, const std::string& text);

// "50=-100,7=1.5": ids and values; INVALID_ARGUMENT names `flag`.
absl::StatusOr<std::vector<std::pair<int32_t, float>>> ParseBiases(const std::string& flag,
                                                                   const std::string& text);

}  // namespace baton::client

#endif  // BATON_CLIENT_ARGUMENTS_H_
