#include "router/client_buffer.h"

#include <utility>

namespace baton::router {

bool ClientBuffer::Add(v1::GenerateStreamResponse response) {
  // Close enough for a merged delta: it never counts less than what it holds.
  const size_t bytes = response.ByteSizeLong();
  if (!waiting_.empty() && bytes_ + bytes > max_bytes_) return false;
  bytes_ += bytes;
  if (!waiting_.empty() && response.has_delta()) {
    Entry& last = waiting_.back();
    if (last.response.has_delta() && last.response.delta().choice() == response.delta().choice()) {
      v1::Delta& into = *last.response.mutable_delta();
      into.mutable_text()->append(response.delta().text());
      into.mutable_token_ids()->MergeFrom(response.delta().token_ids());
      into.mutable_logprobs()->MergeFrom(response.delta().logprobs());
      last.bytes += bytes;
      return true;
    }
  }
  waiting_.push_back({std::move(response), bytes});
  return true;
}

std::optional<v1::GenerateStreamResponse> ClientBuffer::Take() {
  if (waiting_.empty()) return std::nullopt;
  Entry entry = std::move(waiting_.front());
  waiting_.pop_front();
  bytes_ -= entry.bytes;
  return std::move(entry.response);
}

}  // namespace baton::router
