// Attempt ids that are over: they refuse Submit, Reserve, Attach, pieces and Commit for two leases.
#ifndef BATON_KVTRANSFER_TOMBSTONES_H_
#define BATON_KVTRANSFER_TOMBSTONES_H_

#include <cstddef>
#include <deque>
#include <map>
#include <utility>

#include "common/executor.h"
#include "common/ids.h"
#include "common/time.h"

namespace baton::kvtransfer {

// One per worker, shared by its roles. Owner thread: the executor's. An entry leaves `keep` after
// its last Add.
class Tombstones {
 public:
  // `executor` must outlive this object. keep: two leases.
  Tombstones(Executor& executor, Duration keep);

  void Add(const AttemptId& attempt);
  bool Contains(const AttemptId& attempt) const { return until_.count(attempt) != 0; }
  size_t size() const { return until_.size(); }

 private:
  void Expire();

  Executor& executor_;
  const Duration keep_;
  std::map<AttemptId, Time> until_;
  std::deque<std::pair<Time, AttemptId>> order_;
  TimerHandle timer_;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_TOMBSTONES_H_
