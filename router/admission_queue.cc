#include "router/admission_queue.h"

#include <algorithm>

namespace baton::router {

void AdmissionQueue::Take(QueuedRequest request) {
  prompt_tokens_ += request.prompt_tokens;
  requests_.emplace(request.number, std::move(request));
}

void AdmissionQueue::Add(QueuedRequest request) {
  const uint64_t number = request.number;
  Take(std::move(request));
  Resume(number);
}

void AdmissionQueue::Resume(uint64_t number) {
  const QueuedRequest& request = requests_.at(number);
  Line& line = lines_[request.tenant];
  line.order.insert({request.rank, number});
  line.prompt_tokens += request.prompt_tokens;
  counters_.Join(request.tenant);
}

void AdmissionQueue::Remove(uint64_t number) {
  const auto found = requests_.find(number);
  if (found == requests_.end()) return;
  const QueuedRequest& request = found->second;
  const auto line = lines_.find(request.tenant);
  if (line != lines_.end() && line->second.order.erase({request.rank, number}) > 0) {
    line->second.prompt_tokens -= request.prompt_tokens;
    if (line->second.order.empty()) {
      counters_.Leave(request.tenant);
      lines_.erase(line);
    }
  }
  prompt_tokens_ -= request.prompt_tokens;
  requests_.erase(found);
}

void AdmissionQueue::Clear() {
  while (!requests_.empty()) Remove(requests_.begin()->first);
}

uint64_t AdmissionQueue::Next() const { return lines_.at(counters_.Next()).order.begin()->second; }

uint64_t AdmissionQueue::TokensBefore(const QueuedRequest& request) const {
  uint64_t own = 0;
  const auto line = lines_.find(request.tenant);
  if (line != lines_.end()) {
    for (const auto& [rank, number] : line->second.order) {
      if (rank > request.rank) break;
      own += requests_.at(number).prompt_tokens;
    }
  }
  // The others get what brings their counters to where this tenant's will be.
  const uint64_t reached = counters_.Of(request.tenant) + own;
  uint64_t before = own;
  for (const auto& [tenant, other] : lines_) {
    if (tenant == request.tenant) continue;
    const uint64_t counter = counters_.Of(tenant);
    before += std::min(other.prompt_tokens, reached - std::min(reached, counter));
  }
  return before;
}

}  // namespace baton::router
