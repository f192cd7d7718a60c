#include "router/client_buffer.h"

#include <utility>

namespace baton::router {

bool ClientBuffer::Add(v1::GenerateStreamResponse response) {
  // Close enough for a merged delta: it never counts less than what it holds.
  const size_t bytes = response.ByteSizeLong();
  if (!waiting_.empty() && bytes_ + bytes > max_bytes_) return false;
  bytes_ += bytes;
  const auto waiting =
      response.has_delta() ? deltas_.find(response.delta().choice()) : deltas_.end();
  if (waiting != deltas_.end()) {
    Entry& entry = *waiting->second;
    v1::Delta& into = *entry.response.mutable_delta();
    into.mutable_text()->append(response.delta().text());
    into.mutable_token_ids()->MergeFrom(response.delta().token_ids());
    into.mutable_logprobs()->MergeFrom(response.delta().logprobs());
    entry.bytes += bytes;
    return true;
  }
  waiting_.push_back({std::move(response), bytes});
  Entry& entry = waiting_.back();
  if (entry.response.has_delta()) deltas_[entry.response.delta().choice()] = &entry;
  return true;
}

std::optional<v1::GenerateStreamResponse> ClientBuffer::Take() {
  if (waiting_.empty()) return std::nullopt;
  Entry entry = std::move(waiting_.front());
  waiting_.pop_front();
  if (entry.response.has_delta()) deltas_.erase(entry.response.delta().choice());
  bytes_ -= entry.bytes;
  return std::move(entry.response);
}

void ClientBuffer::Clear() {
  deltas_.clear();
  waiting_.clear();
  bytes_ = 0;
}

}  // namespace baton::router
