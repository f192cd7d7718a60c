// What rendering one conversation may cost, so that no template and no conversation can hold a
// thread or fill the memory.
#ifndef BATON_TEXT_JINJA_BUDGET_H_
#define BATON_TEXT_JINJA_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "text/jinja/value.h"

namespace baton::jinja {

class Budget {
 public:
  // `max_text_bytes` bounds the output and every value on the way.
  Budget(uint64_t max_steps, size_t max_text_bytes)
      : max_steps_(max_steps), steps_left_(max_steps), max_text_bytes_(max_text_bytes) {}

  absl::Status Spend(uint64_t steps) {
    if (steps > steps_left_) [[unlikely]]
      return TooManySteps();
    steps_left_ -= steps;
    return absl::OkStatus();
  }
  // Before a text of this size is made: one step per 64 bytes.
  absl::Status SpendText(size_t bytes) {
    if (bytes > max_text_bytes_) [[unlikely]]
      return TooMuchText();
    return Spend(1 + bytes / 64);
  }
  // A text that grows piece by piece.
  absl::Status CheckText(size_t bytes) const {
    return bytes > max_text_bytes_ ? TooMuchText() : absl::OkStatus();
  }
  // For a value that was just made, or is about to be walked.
  absl::Status SpendValue(const Value& value) {
    if (value.depth() > kMaxValueDepth) [[unlikely]] {
      return absl::InvalidArgumentError("chat template nests values deeper than " +
                                        std::to_string(kMaxValueDepth) + " levels");
    }
    return SpendText(value.weight());
  }

 private:
  static constexpr int kMaxValueDepth = 100;

  absl::Status TooManySteps() const {
    return absl::InvalidArgumentError("the conversation takes more than " +
                                      std::to_string(max_steps_) +
                                      " steps to render with the chat template");
  }
  absl::Status TooMuchText() const {
    return absl::InvalidArgumentError("the conversation makes a text longer than " +
                                      std::to_string(max_text_bytes_) +
                                      " bytes with the chat template");
  }

  const uint64_t max_steps_;
  uint64_t steps_left_;
  const size_t max_text_bytes_;
};

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_BUDGET_H_
