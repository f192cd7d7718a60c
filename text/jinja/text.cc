#include "text/jinja/text.h"

#include <algorithm>
#include <utility>

namespace baton::jinja {

Text::Text(std::string bytes, bool from_user) : bytes_(std::move(bytes)) {
  if (!bytes_.empty()) runs_.push_back({bytes_.size(), from_user});
}

bool Text::HasUserBytes() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.from_user; });
}

void Text::Append(std::string_view bytes, bool from_user) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().from_user == from_user) runs_.pop_back();
  runs_.push_back({bytes_.size(), from_user});
}

void Text::AppendRange(const Text& other, size_t begin, size_t end) {
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                              [](size_t at, const Run& r) { return at < r.end; });
  for (size_t at = begin; at < end; ++run) {
    const size_t stop = std::min(end, run->end);
    Append(std::string_view(other.bytes_).substr(at, stop - at), run->from_user);
    at = stop;
  }
}

Text Text::Substr(size_t begin, size_t end) const {
  Text part;
  part.AppendRange(*this, begin, end);
  return part;
}

}  // namespace baton::jinja
