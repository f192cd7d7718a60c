#include "common/silence_watch.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr int kLooks = 4;       // in the limit
constexpr int kLateCounts = 4;  // a late look counts as one of so many parts of a step

}  // namespace

SilenceWatch::SilenceWatch(Executor& executor, Duration limit, std::function<void()> on_silent)
    : executor_(executor),
      limit_(limit),
      step_(std::max(limit / kLooks, Duration(1))),
      on_silent_(std::move(on_silent)) {
  Heard();
  LookAgain();
}

void SilenceWatch::Heard() {
  silence_ = Duration(0);
  counted_ = executor_.Now();
}

void SilenceWatch::LookAgain() {
  look_ = executor_.PostAt(counted_ + std::min(step_, limit_ - silence_), [this] { Look(); });
}

void SilenceWatch::Look() {
  const Time now = executor_.Now();
  const Duration passed = now - std::exchange(counted_, now);
  silence_ += passed < 2 * step_ ? passed : step_ / kLateCounts;
  if (silence_ < limit_) return LookAgain();
  const std::function<void()> on_silent = std::move(on_silent_);
  on_silent();
}

}  // namespace baton
