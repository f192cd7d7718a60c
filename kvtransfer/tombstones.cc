#include "kvtransfer/tombstones.h"

namespace baton::kvtransfer {

Tombstones::Tombstones(Executor& executor, Duration keep) : executor_(executor), keep_(keep) {}

void Tombstones::Add(const AttemptId& attempt) {
  const Time until = executor_.Now() + keep_;
  until_[attempt] = until;
  order_.emplace_back(until, attempt);
  if (order_.size() == 1) {
    timer_ = executor_.PostAt(until, [this] { Expire(); });
  }
}

void Tombstones::Expire() {
  const Time now = executor_.Now();
  while (!order_.empty() && order_.front().first <= now) {
    const auto it = until_.find(order_.front().second);
    if (it != until_.end() && it->second <= now) until_.erase(it);
    order_.pop_front();
  }
  if (!order_.empty()) {
    timer_ = executor_.PostAt(order_.front().first, [this] { Expire(); });
  }
}

}  // namespace baton::kvtransfer
