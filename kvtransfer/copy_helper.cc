#include "kvtransfer/copy_helper.h"

#include <pthread.h>

#include <chrono>

#include "common/clock.h"
#include "common/time.h"

namespace baton::kvtransfer {
namespace {

// Long enough that claiming one costs nothing beside it, short enough that two threads end
// together.
constexpr size_t kStretchBytes = size_t{32} << 10;
// Less is copied before a sleeping helper is there.
constexpr size_t kWorthHelp = size_t{128} << 10;
// Frames of one transfer follow each other faster than this.
constexpr Duration kSpin = std::chrono::microseconds(50);

// Lengths of stretches are few: those of whole pieces and of what is left at the end.
constexpr size_t kMaxTables = 64;

uint32_t CopyAlone(std::span<const CopyPart> parts, uint32_t crc) {
  for (const CopyPart& part : parts) crc = CopyAndCrc32c(part.to, part.from, part.bytes, crc);
  return crc;
}

}  // namespace

CopyHelper::CopyHelper(bool start) {
  if (!start) return;
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "copy-helper");
}

CopyHelper::~CopyHelper() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(sleep_);
    stop_ = true;
    wake_.NotifyOne();
  }
  thread_.join();
}

void CopyHelper::CopyAndCrc(std::span<CopyRun> runs) {
  size_t bytes = 0;
  for (const CopyRun& run : runs) {
    for (const CopyPart& part : run.parts) bytes += part.bytes;
  }
  if (!thread_.joinable() || bytes < kWorthHelp || !caller_.TryLock()) {
    for (CopyRun& run : runs) run.crc = CopyAlone(run.parts, run.crc);
    return;
  }
  CopyTogether(runs);
  caller_.Unlock();
}

std::vector<CopyHelper::Stretch> CopyHelper::Divide(std::span<CopyRun> runs) {
  std::vector<Stretch> stretches;
  for (CopyRun& run : runs) {
    const std::span<const CopyPart> parts(run.parts);
    for (size_t begin = 0; begin < parts.size();) {
      Stretch stretch;
      stretch.run = &run;
      size_t end = begin;
      while (end < parts.size() && stretch.bytes < kStretchBytes) {
        stretch.bytes += parts[end++].bytes;
      }
      stretch.parts = parts.subspan(begin, end - begin);
      stretches.push_back(stretch);
      begin = end;
    }
  }
  return stretches;
}

void CopyHelper::CopyTogether(std::span<CopyRun> runs) {
  Job job;
  job.stretches = Divide(runs);
  job_ = &job;
  if (asleep_) {
    MutexLock lock(sleep_);
    wake_.NotifyOne();
  }
  Work(job);
  job_ = nullptr;
  while (inside_) std::this_thread::yield();
  if (concat_.size() > kMaxTables) concat_.clear();
  for (const Stretch& stretch : job.stretches) {
    const auto table = concat_.try_emplace(stretch.bytes, stretch.bytes).first;
    stretch.run->crc = table->second(stretch.run->crc, stretch.crc);
  }
}

void CopyHelper::Work(Job& job) {
  while (true) {
    const size_t mine = job.next.fetch_add(1);
    if (mine >= job.stretches.size()) return;
    job.stretches[mine].crc = CopyAlone(job.stretches[mine].parts, 0);
  }
}

void CopyHelper::Run() {
  while (AwaitJob()) {
    inside_ = true;
    Job* const job = job_;
    if (job != nullptr) Work(*job);
    inside_ = false;
  }
}

bool CopyHelper::AwaitJob() {
  const Time end = SteadyNow() + kSpin;
  while (!stop_ && SteadyNow() < end) {
    if (job_ != nullptr) return true;
    std::this_thread::yield();
  }
  MutexLock lock(sleep_);
  asleep_ = true;
  while (!stop_ && job_ == nullptr) wake_.Wait(sleep_);
  asleep_ = false;
  return !stop_;
}

}  // namespace baton::kvtransfer
