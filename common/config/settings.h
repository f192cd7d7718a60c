// Options by name: a table says what there is; the command line and one file fill it in.
#ifndef BATON_COMMON_CONFIG_SETTINGS_H_
#define BATON_COMMON_CONFIG_SETTINGS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace baton::config {

struct Option {
  // kSwitch: takes no value; "true" when given.
  enum class Kind { kText, kInteger, kList, kSwitch };

  std::string name;  // with dashes, as on the command line
  Kind kind = Kind::kText;
  // As on the command line; a list's entries are joined with commas.
  std::string otherwise;
  std::string help;
  // kInteger: both ends included.
  int64_t least = 0;
  int64_t most = 0;
  // kText: nothing else is taken; empty: any text.
  std::vector<std::string> choices;
  // False: for the command line alone.
  bool in_file = true;
};

Option Text(std::string name, std::string otherwise, std::string help);
Option Choice(std::string name, std::vector<std::string> choices,
              std::string help);  // the first is the default
Option Integer(std::string name, int64_t otherwise, int64_t least, int64_t most, std::string help);
Option List(std::string name, std::string help);
// For the command line alone.
Option Switch(std::string name, std::string help);

// Values in force: of the command line, else of the file, else the table's. Not thread-safe. Names
// in the accessors must be in the table. Every error is INVALID_ARGUMENT of one line with the name
// as its giver wrote it, the value, and what would be accepted.
class Settings {
 public:
  explicit Settings(std::vector<Option> table);

  // "--name=value" or "--name value"; underscores in a name read as dashes, the last one wins.
  absl::Status TakeArguments(const std::vector<std::string>& arguments);
  // A JSON object, `//` comments allowed: text, whole numbers and arrays of text by name. All of it
  // is checked, what the command line overrides included. `path` is for messages.
  absl::Status TakeFileText(const std::string& path, const std::string& text);
  // The same from a file of at most 1 MiB.
  absl::Status TakeFile(const std::string& path);

  // Whether the command line or the file gave it.
  bool IsSet(const std::string& name) const { return given_.contains(name); }
  const std::string& Text(const std::string& name) const;
  int64_t Integer(const std::string& name) const;
  // Without empty entries.
  std::vector<std::string> List(const std::string& name) const;
  const std::vector<Option>& table() const { return table_; }

  // "--max-queue" or "FILE: max-queue": how whoever gave the value wrote its name.
  std::string Where(const std::string& name) const;
  // "--max-queue is 0; must be at least 1" for `limit` "must be at least 1".
  absl::Status Bad(const std::string& name, const std::string& limit) const;

  // What TakeFileText reads: every option of the file, one a line, in the table's order.
  std::string ToJson() const;
  // One option a line with its default.
  std::string Usage() const;

 private:
  struct Given {
    std::string value;
    std::string where;
  };

  const Option* Find(const std::string& name) const;
  absl::Status TakeArgument(const Option& option, const std::string& value);

  std::vector<Option> table_;
  std::map<std::string, Given> given_;
};

}  // namespace baton::config

#endif  // BATON_COMMON_CONFIG_SETTINGS_H_
