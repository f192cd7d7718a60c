// A string that remembers which of its bytes came from a client, so that rendered text of a
// template and text of its users stay apart (text/text_segment.h).
#ifndef BATON_TEXT_JINJA_TEXT_H_
#define BATON_TEXT_JINJA_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace baton::jinja {

class Text {
 public:
  // Bytes up to `end` (from the end of the run before) share one origin. Neighbours differ.
  struct Run {
    size_t end;
    bool from_user;
  };

  Text() = default;
  Text(std::string bytes, bool from_user);

  const std::string& bytes() const { return bytes_; }
  const std::vector<Run>& runs() const { return runs_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool HasUserBytes() const;

  void Append(const Text& other) { AppendRange(other, 0, other.size()); }
  void Append(std::string_view bytes, bool from_user);
  Text Substr(size_t begin, size_t end) const;

 private:
  void AppendRange(const Text& other, size_t begin, size_t end);

  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_TEXT_H_
