#include "client/bench/lengths.h"

#include <charconv>
#include <optional>

namespace baton::client {
namespace {

std::optional<uint32_t> ParseLength(const std::string& text) {
  uint32_t value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  if (value < 1 || value > kMaxLength) return std::nullopt;
  return value;
}

}  // namespace

uint32_t Lengths::Draw(Random& random) const {
  if (least == most) return least;
  return least + static_cast<uint32_t>(random.Below(uint64_t{most} - least + 1));
}

absl::StatusOr<Lengths> ParseLengths(const std::string& flag, const std::string& text) {
  const size_t dots = text.find("..");
  const auto least = ParseLength(text.substr(0, dots));
  const auto most = dots == std::string::npos ? least : ParseLength(text.substr(dots + 2));
  if (!least.has_value() || !most.has_value() || *least > *most) {
    return absl::InvalidArgumentError("--" + flag + " is " + text +
                                      "; must be N or A..B from 1 to " +
                                      std::to_string(kMaxLength));
  }
  return Lengths{*least, *most};
}

}  // namespace baton::client
