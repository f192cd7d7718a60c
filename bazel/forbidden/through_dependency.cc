// Planted: common/mutex.h is there only because event_loop depends on it.
#include "common/event_loop.h"
#include "common/mutex.h"

void Lock(baton::Mutex& mutex) { baton::MutexLock lock(mutex); }
