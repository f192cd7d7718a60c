// A chat template of any text over one conversation: it is refused, or rendered within its limits
// and the same each time, and what a client wrote never passes for the template's own words.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/check.h"
#include "text/template.h"
#include "text/text_segment.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr size_t kMaxOutput = size_t{64} << 10;

// In the conversation alone: a template that does not hold it cannot write it itself.
constexpr std::string_view kMark = "\xE2\x98\x83";  // snowman: has no other case

ChatInput Conversation() {
  ChatInput input;
  const std::string mark(kMark);
  input.messages = {{"system", "a b, " + mark + "C"},
                    {"user", mark + "{{ x }}\n1 <think>y</think> z" + mark},
                    {"assistant", " " + mark},
                    {"user", "last" + mark}};
  input.now_unix_s = 1'700'000'000;
  return input;
}

// Whether the template could make the mark out of an escape.
bool MayWriteTheMark(std::string_view source) {
  return source.find(kMark) != std::string_view::npos ||
         source.find('\\') != std::string_view::npos;
}

void CheckOutput(const std::vector<TextSegment>& segments, bool may_write_the_mark) {
  size_t bytes = 0;
  for (const TextSegment& segment : segments) {
    bytes += segment.text.size();
    BATON_CHECK(IsValidUtf8(segment.text));
    if (segment.from_user || may_write_the_mark) continue;
    BATON_CHECK(segment.text.find(kMark) == std::string::npos);
  }
  BATON_CHECK(bytes <= kMaxOutput);
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  TemplateOptions options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.max_source_bytes = size_t{16} << 10;
  options.max_output_bytes = kMaxOutput;
  options.max_steps = 20'000;
  const auto chat = ChatTemplate::Parse(source, options);
  if (!chat.ok()) {
    BATON_CHECK(absl::IsFailedPrecondition(chat.status()));
    return 0;
  }
  const ChatInput input = Conversation();
  const auto once = chat->Render(input);
  const auto again = chat->Render(input);
  BATON_CHECK(once.status() == again.status());
  if (!once.ok()) {
    BATON_CHECK(absl::IsInvalidArgument(once.status()) ||
                absl::IsFailedPrecondition(once.status()));
    return 0;
  }
  BATON_CHECK(*once == *again);
  CheckOutput(*once, MayWriteTheMark(source));
  return 0;
}
