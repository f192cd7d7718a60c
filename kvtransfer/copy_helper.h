// Copies pieces with their CRC on the caller's thread and, while it is free, on one more: a single
// thread does not saturate the memory.
#ifndef BATON_KVTRANSFER_COPY_HELPER_H_
#define BATON_KVTRANSFER_COPY_HELPER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <thread>
#include <vector>

#include "common/crc32c.h"
#include "common/mutex.h"

namespace baton::kvtransfer {

struct CopyPart {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t bytes = 0;
};

// Parts under one CRC, in this order.
struct CopyRun {
  std::vector<CopyPart> parts;
  // Of what stands before the parts; after the copy of that followed by exactly the bytes that were
  // written.
  uint32_t crc = 0;
};

// Thread-safe. The caller never waits for the helper to start, only for a stretch that it has
// begun; callers that find it busy copy alone. After a copy the helper spins for the next one for
// some tens of microseconds, then sleeps.
class CopyHelper {
 public:
  // Without `start` there is no helper and every caller copies alone.
  explicit CopyHelper(bool start = std::thread::hardware_concurrency() > 1);
  ~CopyHelper();
  CopyHelper(const CopyHelper&) = delete;
  CopyHelper& operator=(const CopyHelper&) = delete;

  // The ranges of all parts do not overlap.
  void CopyAndCrc(std::span<CopyRun> runs);

 private:
  // Parts of one run that one thread copies.
  struct Stretch {
    CopyRun* run = nullptr;
    std::span<const CopyPart> parts;
    size_t bytes = 0;
    uint32_t crc = 0;  // from 0; by whoever claimed it
  };
  struct Job {
    std::vector<Stretch> stretches;
    std::atomic<size_t> next{0};
  };

  static void Work(Job& job);
  static std::vector<Stretch> Divide(std::span<CopyRun> runs);
  void Run();
  bool AwaitJob();
  void CopyTogether(std::span<CopyRun> runs) BATON_REQUIRES(caller_);

  Mutex caller_;  // of the one who has the helper
  std::map<size_t, Crc32cConcat> concat_ BATON_GUARDED_BY(caller_);  // by bytes of a stretch

  // The helper announces that it may look into a job (inside_) before it reads job_, and the caller
  // takes job_ back before it reads inside_: one of the two sees the other.
  std::atomic<Job*> job_{nullptr};
  std::atomic<bool> inside_{false};

  Mutex sleep_;
  CondVar wake_;
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_COPY_HELPER_H_
