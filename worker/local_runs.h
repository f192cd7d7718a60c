// Attempts that this worker runs from the prompt to the end by itself: unified use, no prefill
// worker alive, short prompts.
#ifndef BATON_WORKER_LOCAL_RUNS_H_
#define BATON_WORKER_LOCAL_RUNS_H_

#include <cstddef>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "worker/role.h"

namespace baton::worker {

// kWaiting: in the queue for blocks; kRunning: in the engine.
enum class LocalRunState { kWaiting, kRunning };

//                 kWaiting                    kRunning
//  Submit         refused (live)              refused (live)
//  Granted        kRunning                    -
//  Token          -                           event
//  LastToken      -                           event, over
//  Failed         -                           event Failed, over
//  Deadline       event Failed, over          event Failed, over
//  Attach         ignored                     ignored
//  Cancel         over                        over
//  RouterLost     over                        over
//
// Owner thread: the executor's.
class LocalRuns : public Role {
 public:
  // `context` must outlive this object.
  explicit LocalRuns(WorkerContext& context);
  ~LocalRuns() override;

  bool Has(const AttemptId& attempt) const override { return runs_.count(attempt) != 0; }
  absl::Status Submit(Submission submission) override;
  void Attach(const AttemptId&) override {}
  void Cancel(const AttemptId& attempt) override;
  void DropRouter(const Epoch& router, v1::Cause cause) override;
  QueueLoad Queued() const override;
  size_t live() const override { return runs_.size(); }

 private:
  struct Run;
  void Start(const AttemptId& attempt, kv::CachedLease room);
  void Expire(const AttemptId& attempt);
  void Finish(const AttemptId& attempt);

  WorkerContext& context_;
  std::map<AttemptId, std::unique_ptr<Run>> runs_;
};

}  // namespace baton::worker

#endif  // BATON_WORKER_LOCAL_RUNS_H_
