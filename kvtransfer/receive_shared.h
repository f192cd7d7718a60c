// What ReceiveTable and its ReceiveConnections share, under one mutex. Private to these two.
#ifndef BATON_KVTRANSFER_RECEIVE_SHARED_H_
#define BATON_KVTRANSFER_RECEIVE_SHARED_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/executor.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "kv/arena.h"
#include "kvtransfer/cause.h"
#include "kvtransfer/receive_table.h"

namespace baton::kvtransfer {

class ReceiveConnection;

// Guarded by ReceiveShared::mutex, except what is const.
struct InboundTransfer {
  enum class State { kExpected, kOpen, kFailed, kCommitArrived, kCommitted, kDropped };

  AttemptId attempt;
  Epoch source;
  uint64_t secret = 0;
  std::vector<GrantedGroup> groups;
  // [layer][arena][ordinal - first_needed]: bytes that landed, in order.
  std::vector<std::vector<std::vector<uint32_t>>> received;
  uint64_t remaining = 0;  // bytes still to land
  State state = State::kExpected;
  Cause cause{};             // of kFailed and kDropped
  uint32_t landings = 0;     // between Enter and Leave
  bool quiesce_due = false;  // dropped inside a landing
  bool landed_any = false;
  uint64_t uncredited = 0;
  ReceiveConnection* connection = nullptr;  // that opened it
};

struct ReceiveShared : std::enable_shared_from_this<ReceiveShared> {
  using State = InboundTransfer::State;

  ReceiveShared(const Epoch& sink, kv::KvArena& the_arena, Executor& the_executor)
      : sink_epoch(sink), arena(the_arena), executor(the_executor) {}

  // Runs `event` with the listener on the executor.
  void Post(std::function<void(ReceiveTable::Listener&)> event);

  // kExpected or kOpen -> kFailed, and the listener hears of it.
  void Fail(InboundTransfer& transfer, Cause cause) BATON_REQUIRES(mutex);
  void Reply(InboundTransfer& transfer, Cause cause) BATON_REQUIRES(mutex);
  void PostQuiesced(InboundTransfer& transfer) BATON_REQUIRES(mutex);
  void ForgetDroppedBefore(Time old) BATON_REQUIRES(mutex);

  const Epoch sink_epoch;
  kv::KvArena& arena;
  Executor& executor;
  ReceiveTable::Listener* listener = nullptr;  // executor's thread only

  Mutex mutex;
  std::map<AttemptId, std::shared_ptr<InboundTransfer>> transfers BATON_GUARDED_BY(mutex);
  std::deque<std::pair<Time, AttemptId>> dropped BATON_GUARDED_BY(mutex);
  std::set<Epoch> sources BATON_GUARDED_BY(mutex);
  std::set<ReceiveConnection*> connections BATON_GUARDED_BY(mutex);
  uint64_t last_connection BATON_GUARDED_BY(mutex) = 0;
  uint64_t landed_bytes BATON_GUARDED_BY(mutex) = 0;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_RECEIVE_SHARED_H_
