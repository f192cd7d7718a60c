#include "router/delivered.h"

#include <string>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "router/error_reasons.h"
#include "router/status_details.h"

namespace baton::router {
namespace {

constexpr auto kGoesOn = worker::v1::FINISH_REASON_UNSPECIFIED;

absl::Status Contradiction(const worker::v1::Token& token, const std::string& what,
                           const char* reason = kReasonProtocol) {
  return ErrorWithReason(absl::StatusCode::kInternal,
                         what + " (choice " + std::to_string(token.choice()) + ", position " +
                             std::to_string(token.position()) + ")",
                         reason);
}

}  // namespace

absl::StatusOr<bool> Delivered::Check(const worker::v1::Token& token) const {
  if (token.choice() >= choices_.size()) {
    return Contradiction(token, "a token of a choice that does not exist");
  }
  const Choice& choice = choices_[token.choice()];
  const uint64_t next = prompt_tokens_ + choice.tokens.size();
  if (token.position() < prompt_tokens_ || token.position() > next) {
    return Contradiction(token,
                         "a token where the next one is at position " + std::to_string(next));
  }
  if (token.position() == next) {
    BATON_RETURN_IF_ERROR(CheckNew(choice, token));
    return true;
  }
  const bool its_last = token.position() + 1 == next;
  if (choice.tokens[token.position() - prompt_tokens_] != token.token() ||
      token.finish_reason() != (its_last ? choice.finish : kGoesOn)) {
    return Contradiction(token, "a repeated token differs", kReasonTokenMismatch);
  }
  return false;
}

absl::Status Delivered::CheckNew(const Choice& choice, const worker::v1::Token& token) const {
  if (choice.finish != kGoesOn) return Contradiction(token, "a token behind the choice's end");
  if (token.visible_bytes() < choice.visible_bytes) {
    return Contradiction(token, "visible bytes fell");
  }
  if (choice.tokens.size() >= max_tokens_) return Contradiction(token, "more than max_tokens");
  return absl::OkStatus();
}

bool Delivered::EndsAll(const worker::v1::Token& token) const {
  const size_t others_over = over_ - (choices_[token.choice()].finish != kGoesOn ? 1 : 0);
  return token.finish_reason() != kGoesOn && others_over + 1 == choices_.size();
}

std::optional<Duration> Delivered::Add(const worker::v1::Token& token, Time now) {
  Choice& choice = choices_[token.choice()];
  std::optional<Duration> gap;
  if (!choice.tokens.empty()) {
    gap = now - choice.last_token;
    went_on_ = true;
  }
  choice.last_token = now;
  choice.tokens.push_back(token.token());
  choice.visible_bytes = token.visible_bytes();
  choice.finish = token.finish_reason();
  if (choice.finish != kGoesOn) ++over_;
  ++tokens_;
  return gap;
}

}  // namespace baton::router
