#include "common/worker_pool.h"

#include <pthread.h>

namespace baton {

WorkerPool::WorkerPool(Options options) : options_(std::move(options)) {
  for (size_t i = 0; i < options_.num_threads; ++i) {
    threads_.emplace_back([this] { Run(); });
    pthread_setname_np(threads_.back().native_handle(), options_.name.substr(0, 15).c_str());
  }
}

WorkerPool::~WorkerPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::TryRun(Executor& reply_to, std::function<void()> work,
                        std::function<void()> done) {
  {
    MutexLock lock(mutex_);
    if (stopping_ || jobs_.size() >= options_.max_queued) return false;
    jobs_.push_back({&reply_to, std::move(work), std::move(done)});
  }
  wake_.NotifyOne();
  return true;
}

void WorkerPool::Run() {
  while (true) {
    Job job;
    {
      MutexLock lock(mutex_);
      while (jobs_.empty() && !stopping_) wake_.Wait(mutex_);
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job.work();
    job.work = nullptr;  // what it captured ends here, before the core sees the result
    job.reply_to->Post(std::move(job.done));
  }
}

}  // namespace baton
