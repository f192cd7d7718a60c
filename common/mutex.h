// std::mutex and std::condition_variable with the annotations that clang checks. Never absl::Mutex:
// its uninstrumented library makes TSan report false races.
#ifndef BATON_COMMON_MUTEX_H_
#define BATON_COMMON_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "common/thread_annotations.h"
#include "common/time.h"

namespace baton {

class BATON_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() BATON_ACQUIRE() { mutex_.lock(); }
  bool TryLock() BATON_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void Unlock() BATON_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds `mutex` for its scope.
class BATON_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) BATON_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() BATON_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Wakes for no reason at times: wait in a loop over the condition (a predicate would hide the
// guarded fields from the analysis).
class CondVar {
 public:
  void Wait(Mutex& mutex) BATON_REQUIRES(mutex) BATON_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // False when `deadline` (on SteadyNow()'s clock) passed without a wake-up.
  bool WaitUntil(Mutex& mutex, Time deadline)
      BATON_REQUIRES(mutex) BATON_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const std::chrono::time_point<std::chrono::steady_clock, Duration> when(
        deadline.time_since_epoch());
    const bool woken = condition_.wait_until(lock, when) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace baton

#endif  // BATON_COMMON_MUTEX_H_
