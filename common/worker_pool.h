// Threads for work that is too long for a core's turn (tokenizing, rendering, hashing). Results
// come back as events of the executor that asked.
#ifndef BATON_COMMON_WORKER_POOL_H_
#define BATON_COMMON_WORKER_POOL_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/executor.h"
#include "common/mutex.h"

namespace baton {

// What a core sees; a simulated node gives it InlineOffloader (sim_executor.h).
class Offloader {
 public:
  virtual ~Offloader() = default;

  // Runs `work` elsewhere, then `done` as a task of `reply_to`. False, and neither ever runs, when
  // the queue is full: refuse the request that wanted it. Thread-safe. `reply_to` must outlive the
  // work. `work` touches only what it captured.
  [[nodiscard]] virtual bool TryRun(Executor& reply_to, std::function<void()> work,
                                    std::function<void()> done) = 0;
};

// TryRun with a result: done(work()).
template <typename T>
[[nodiscard]] bool Offload(Offloader& offloader, Executor& reply_to, std::function<T()> work,
                           std::function<void(T)> done) {
  auto result = std::make_shared<std::optional<T>>();
  return offloader.TryRun(
      reply_to, [result, work = std::move(work)] { result->emplace(work()); },
      [result, done = std::move(done)] { done(std::move(**result)); });
}

// Thread-safe. The destructor finishes the running work, drops what waits, and joins.
class WorkerPool : public Offloader {
 public:
  struct Options {
    std::string name = "pool";
    size_t num_threads = 1;
    size_t max_queued = 1024;
  };

  explicit WorkerPool(Options options);
  ~WorkerPool() override;
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] bool TryRun(Executor& reply_to, std::function<void()> work,
                            std::function<void()> done) override;

 private:
  struct Job {
    Executor* reply_to = nullptr;
    std::function<void()> work;
    std::function<void()> done;
  };
  void Run();

  const Options options_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Job> jobs_ BATON_GUARDED_BY(mutex_);
  bool stopping_ BATON_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton

#endif  // BATON_COMMON_WORKER_POOL_H_
