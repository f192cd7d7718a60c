#include "text/stop.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

absl::Status FieldError(const std::string& field, const std::string& what) {
  return absl::InvalidArgumentError("stop." + field + " " + what);
}

std::string Indexed(const std::string& field, size_t i) {
  return field + "[" + std::to_string(i) + "]";
}

absl::Status ValidateStopStrings(const std::vector<std::string>& strings) {
  if (strings.size() > kMaxStopStrings) {
    return FieldError("stop_strings", "has " + std::to_string(strings.size()) +
                                          " entries, at most " + std::to_string(kMaxStopStrings) +
                                          " are allowed");
  }
  for (size_t i = 0; i < strings.size(); ++i) {
    if (strings[i].empty()) return FieldError(Indexed("stop_strings", i), "is empty");
    if (strings[i].size() <= kMaxStopStringBytes) continue;
    return FieldError(Indexed("stop_strings", i),
                      "has " + std::to_string(strings[i].size()) + " bytes, at most " +
                          std::to_string(kMaxStopStringBytes) + " are allowed");
  }
  return absl::OkStatus();
}

std::vector<uint16_t> FallbackTable(const std::string& pattern) {
  std::vector<uint16_t> fallback(pattern.size(), 0);
  uint16_t matched = 0;
  for (size_t i = 1; i < pattern.size(); ++i) {
    while (matched > 0 && pattern[i] != pattern[matched]) matched = fallback[matched - 1];
    if (pattern[i] == pattern[matched]) ++matched;
    fallback[i] = matched;
  }
  return fallback;
}

}  // namespace

absl::Status ValidateStopParams(const StopParams& stop, int32_t vocab_size) {
  if (stop.max_tokens == 0) return FieldError("max_tokens", "is 0, at least 1 is needed");
  if (stop.min_tokens > stop.max_tokens) {
    return FieldError("min_tokens", "is " + std::to_string(stop.min_tokens) +
                                        ", above max_tokens, which is " +
                                        std::to_string(stop.max_tokens));
  }
  if (absl::Status status = ValidateStopStrings(stop.stop_strings); !status.ok()) return status;
  if (stop.stop_token_ids.size() > kMaxStopTokenIds) {
    return FieldError("stop_token_ids", "has " + std::to_string(stop.stop_token_ids.size()) +
                                            " entries, at most " +
                                            std::to_string(kMaxStopTokenIds) + " are allowed");
  }
  for (size_t i = 0; i < stop.stop_token_ids.size(); ++i) {
    const TokenId token = stop.stop_token_ids[i];
    if (token >= 0 && token < vocab_size) continue;
    return FieldError(Indexed("stop_token_ids", i), "is " + std::to_string(token) +
                                                        ", outside the vocabulary of " +
                                                        std::to_string(vocab_size) + " tokens");
  }
  return absl::OkStatus();
}

StopMatcher::StopMatcher(const Vocab& vocab, const StopParams& stop)
    : vocab_(vocab),
      ignore_end_tokens_(stop.ignore_eos),
      include_stop_(stop.include_stop),
      min_tokens_(stop.min_tokens),
      stop_tokens_(stop.stop_token_ids) {
  for (const std::string& bytes : stop.stop_strings) {
    BATON_CHECK(!bytes.empty() && bytes.size() <= kMaxStopStringBytes);
    patterns_.push_back({bytes, FallbackTable(bytes)});
  }
}

StopReason StopMatcher::Accept(TokenId token) {
  BATON_CHECK(!ended_);
  ++accepted_;
  const bool stops = StopsById(token);
  if (accepted_ > min_tokens_ && (stops || (!ignore_end_tokens_ && vocab_.IsEnd(token)))) {
    End(raw_bytes_ + (include_stop_ ? vocab_.Bytes(token).size() : 0));
    return stops ? StopReason::kStopToken : StopReason::kEndToken;
  }
  for (const char byte : vocab_.Bytes(token)) {
    held_.push_back(byte);
    ++raw_bytes_;
    const size_t length = Advance(static_cast<uint8_t>(byte));
    if (length == 0 || accepted_ < min_tokens_) continue;
    End(include_stop_ ? raw_bytes_ : raw_bytes_ - length);
    return StopReason::kStopString;
  }
  ShowSettledBytes();
  return StopReason::kNone;
}

bool StopMatcher::StopsById(TokenId token) const {
  return std::find(stop_tokens_.begin(), stop_tokens_.end(), token) != stop_tokens_.end();
}

std::vector<TokenId> StopMatcher::ForbiddenNext() const {
  if (accepted_ >= min_tokens_) return {};
  std::vector<TokenId> ids = stop_tokens_;
  if (ignore_end_tokens_) return ids;
  ids.insert(ids.end(), vocab_.end_tokens().begin(), vocab_.end_tokens().end());
  return ids;
}

void StopMatcher::Finish() {
  BATON_CHECK(!ended_);
  End(raw_bytes_);
}

size_t StopMatcher::Advance(uint8_t byte) {
  size_t longest = 0;
  const char c = static_cast<char>(byte);
  for (Pattern& pattern : patterns_) {
    ++steps_;
    if (pattern.matched == pattern.bytes.size()) {  // a match that min_tokens let pass
      pattern.matched = pattern.fallback[pattern.matched - 1];
    }
    while (pattern.matched > 0 && pattern.bytes[pattern.matched] != c) {
      ++steps_;
      pattern.matched = pattern.fallback[pattern.matched - 1];
    }
    if (pattern.bytes[pattern.matched] == c) ++pattern.matched;
    if (pattern.matched == pattern.bytes.size()) longest = std::max(longest, pattern.matched);
  }
  return longest;
}

size_t StopMatcher::LongestPartial() const {
  size_t longest = 0;
  for (const Pattern& pattern : patterns_) longest = std::max(longest, pattern.matched);
  return longest;
}

void StopMatcher::End(uint64_t visible_bytes) {
  BATON_CHECK(visible_bytes >= visible_bytes_);
  visible_bytes_ = visible_bytes;
  ended_ = true;
  held_.clear();
}

// A partial match grows by at most one per byte, so the settled length never falls.
void StopMatcher::ShowSettledBytes() {
  const size_t settled = held_.size() - LongestPartial();
  for (size_t i = 0; i < settled; ++i) {
    const auto byte = static_cast<uint8_t>(held_[i]);
    if (boundary_.Feed(byte) == Utf8Scanner::Result::kInterrupt) boundary_.Feed(byte);
  }
  held_.erase(0, settled);
  visible_bytes_ = raw_bytes_ - held_.size() - boundary_.pending();
}

}  // namespace baton
