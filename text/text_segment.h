#ifndef BATON_TEXT_TEXT_SEGMENT_H_
#define BATON_TEXT_TEXT_SEGMENT_H_

#include <string>

namespace baton {

// A piece of a prompt. Text of special tokens becomes special tokens only where the model's own
// template wrote it: what came from a client (content, roles, names, tools) is ordinary text and
// cannot forge a turn.
struct TextSegment {
  std::string text;
  bool from_user = true;
  bool operator==(const TextSegment&) const = default;
};

}  // namespace baton

#endif  // BATON_TEXT_TEXT_SEGMENT_H_
