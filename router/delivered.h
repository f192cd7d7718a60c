// What the client has seen of a request, choice by choice: the only authority on what comes next.
#ifndef BATON_ROUTER_DELIVERED_H_
#define BATON_ROUTER_DELIVERED_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/decoder_state.h"
#include "common/time.h"

namespace baton::router {

// Owner thread: the core's.
class Delivered {
 public:
  Delivered(uint32_t choices, uint64_t prompt_tokens, uint32_t max_tokens)
      : prompt_tokens_(prompt_tokens), max_tokens_(max_tokens), choices_(choices) {}

  // Whether the token is new. INTERNAL: there is no such choice, the token contradicts what the
  // client saw, leaves a gap, or goes on behind the choice's end.
  absl::StatusOr<bool> Check(const worker::v1::Token& token) const;

  // Whether every choice is over when the client has this token of one of them.
  bool EndsAll(const worker::v1::Token& token) const;

  // A token that is checked and new. Returns the time since the choice's token before; absent: it
  // is the choice's first.
  std::optional<Duration> Add(const worker::v1::Token& token, Time now);

  // Of all choices.
  size_t tokens() const { return tokens_; }
  // Whether a choice has more than its first token.
  bool went_on() const { return went_on_; }

 private:
  struct Choice {
    std::vector<TokenId> tokens;  // next position = prompt length + size
    uint64_t visible_bytes = 0;
    worker::v1::FinishReason finish = worker::v1::FINISH_REASON_UNSPECIFIED;
    Time last_token;
  };

  absl::Status CheckNew(const Choice& choice, const worker::v1::Token& token) const;

  const uint64_t prompt_tokens_;
  const uint32_t max_tokens_;
  std::vector<Choice> choices_;
  size_t tokens_ = 0;
  size_t over_ = 0;  // choices
  bool went_on_ = false;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_DELIVERED_H_
