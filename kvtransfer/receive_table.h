// The fence of a sink: which transfer may be written into which blocks, and what has landed.
//
// The sink's core puts in what it granted (Expect) and takes it out (Drop); the data connections
// ask before every write (receive_connection.h). A block is written only between Enter and Leave of
// a landing, and Drop reports OnQuiesced only outside of them, so after it nothing touches the
// blocks.
#ifndef BATON_KVTRANSFER_RECEIVE_TABLE_H_
#define BATON_KVTRANSFER_RECEIVE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/executor.h"
#include "common/ids.h"
#include "common/time.h"
#include "kv/arena.h"
#include "kvtransfer/cause.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

struct ReceiveShared;

// Blocks of one KV group granted to a transfer, by ordinal. Pieces must come for the ordinals
// [first_needed, prompt_blocks); what is before them is there already, or outside of the group's
// window, the rest is room to grow.
struct GrantedGroup {
  uint32_t first_needed = 0;
  uint32_t prompt_blocks = 0;
  std::vector<kv::BlockId> blocks;
};

// The calls are the core's (the executor's thread); the listener is called there, never inside a
// call. The threads of data connections come in through ReceiveConnection.
class ReceiveTable {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // The first piece of a transfer has landed.
    virtual void OnFirstPiece(const AttemptId& attempt) = 0;
    // Commit came after all pieces. `problem` is CAUSE_UNSPECIFIED when every piece is there. From
    // here on the transfer is written no more. Answer with Reply.
    virtual void OnCommitArrived(const AttemptId& attempt, Cause problem,
                                 CommitMessage message) = 0;
    // A piece was damaged (CAUSE_CHECKSUM_MISMATCH), the source closed the transfer
    // (CAUSE_RELEASED: its Release says why) or its connection ended (CAUSE_PEER_LOST,
    // CAUSE_MALFORMED). At most once,
    // and never after OnCommitArrived.
    virtual void OnTransferFailed(const AttemptId& attempt, Cause cause) = 0;
    // After Drop: nothing is being read into the blocks of the transfer, nor will be. Once.
    virtual void OnQuiesced(const AttemptId& attempt) = 0;
  };

  // `arena` and `executor` must outlive this object. Dropped transfers are remembered for `keep`
  // (two leases): what arrives for them is discarded instead of ending the connection.
  ReceiveTable(const Epoch& sink_epoch, kv::KvArena& arena, Executor& executor, Duration keep);
  ~ReceiveTable();
  ReceiveTable(const ReceiveTable&) = delete;
  ReceiveTable& operator=(const ReceiveTable&) = delete;

  // Null: events are dropped.
  void SetListener(Listener* listener);

  // Data connections of other sources are refused; RemoveSource ends those that are open.
  void AddSource(const Epoch& source);
  void RemoveSource(const Epoch& source);

  // From now on a connection of `source` that opens `attempt` with `secret` may write into the
  // blocks. Sizes fit the layout and block ids the arena (the core made them).
  void Expect(const AttemptId& attempt, const Epoch& source, uint64_t secret,
              std::vector<GrantedGroup> groups);
  // Nothing more is written; OnQuiesced follows. A commit that waits for Reply or still comes is
  // answered with `cause`. Not after Reply(CAUSE_UNSPECIFIED).
  void Drop(const AttemptId& attempt, Cause cause);
  // Answers a commit with Committed: the blocks are the engine's.
  void Accept(const AttemptId& attempt);

  // Of the arena it writes into. Any thread.
  const kv::KvLayout& layout() const;
  // Bytes of pieces that landed whole, of all transfers so far.
  uint64_t landed_bytes() const;
  // Transfers that are expected, or open and neither committed nor dropped.
  size_t live() const;

 private:
  friend class ReceiveConnection;

  Executor& executor_;
  const Duration keep_;
  // Outlives this object in tasks posted to the executor.
  const std::shared_ptr<ReceiveShared> shared_;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_RECEIVE_TABLE_H_
