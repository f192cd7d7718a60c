// Planted: a guarded field is written without its lock.
#include "common/mutex.h"

class Counter {
 public:
  void Add() { ++count_; }

 private:
  baton::Mutex mutex_;
  int count_ BATON_GUARDED_BY(mutex_) = 0;
};

void AddTo(Counter& counter) { counter.Add(); }
