// The checked walk over a GGUF v3 file that GgufReader is built on (see there for what is
// promised).
#ifndef BATON_GGUF_GGUF_PARSER_H_
#define BATON_GGUF_GGUF_PARSER_H_

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "gguf/gguf_types.h"

namespace baton {

// Views into the parsed bytes.
struct GgufContents {
  std::map<std::string_view, GgufValue, std::less<>> values;
  std::vector<GgufTensor> tensors;
  std::map<std::string_view, size_t, std::less<>> tensor_index;  // into `tensors`
};

// `file_name` is used in errors only. INVALID_ARGUMENT: not a valid GGUF v3 file.
absl::StatusOr<GgufContents> ParseGguf(std::span<const std::byte> bytes,
                                       std::string_view file_name);

}  // namespace baton

#endif  // BATON_GGUF_GGUF_PARSER_H_
