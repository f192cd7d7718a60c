// Which sequence gets the next KV block, and which gives its blocks up for it (DESIGN section 6).
//
// Sequences take blocks as they grow. When one needs a block and none is free, the youngest that
// holds blocks gives way: a reservation (room_holder.h) gives them back, a running sequence is
// preempted, and the one that needs the block, when it is the youngest itself, waits with what it
// has. Blocks go to running sequences, then to preempted ones, oldest first in both, and only then
// to those who wait for their first (room_queue.h): waits() is true until then.
//
// Why nobody waits for ever. Ages are totally ordered (admission, then sequence id). The oldest
// sequence that takes part never gives way, and what it may come to need fits the empty pool
// (CheckNewSequence). If it lacks a block, everybody younger who holds some has given way, so what
// it lacks is on the way back: blocks of a reservation that is being quiesced, or of an older one
// that runs or ends, or of a prompt that is shipped. None of these needs a block any more to come
// to its end, and each ends by itself, at the latest with its lease. So the oldest gets each of its
// blocks, makes a token with it, and comes to its end; then the next one is the oldest. A preempted
// sequence resumes when there is room for all that it had and a block more for each choice, and its
// tokens and random numbers stay: it never samples a position twice.
//
// Two that each lack the last block do not freeze each other: the older one takes those of the
// younger.
#ifndef BATON_ENGINE_ROOM_BY_AGE_H_
#define BATON_ENGINE_ROOM_BY_AGE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/choice.h"
#include "engine/engine_metrics.h"
#include "engine/model_runner.h"
#include "engine/room_holder.h"
#include "engine/sequence.h"
#include "kv/block_pool.h"
#include "kv/prefix_cache.h"
#include "kv/sliding_windows.h"

namespace baton::engine {

// kPrefillOnly sequences take no part: they have all that they will need, their blocks are being
// shipped, and computing them again would not give those back.
//
// Owner: the engine.
class RoomByAge {
 public:
  using Sequences = std::map<SequenceId, std::unique_ptr<Sequence>>;
  // All must outlive this object.
  struct Environment {
    kv::BlockPool& pool;
    kv::PrefixCache* cache = nullptr;  // over `pool`
    RoomHolder* others = nullptr;
    EngineMetrics& metrics;
    const kv::SlidingWindows& windows;
    Sequences& sequences;
  };
  explicit RoomByAge(const Environment& environment) : env_(environment) {}

  // Gives every choice that is to run a token the block for it, as far as there are blocks, and
  // resumes preempted sequences. No step is in flight. A choice that got none has no room
  // (Choice::has_room) and keeps what it has.
  void Settle();

  // Somebody lacked blocks when Settle was last called.
  bool waits() const { return lacking_ > 0; }

  // Blocks of each group that whoever begins or resumes leaves free: one for every two choices that
  // may still grow beyond what they have. Without them each one that joins a full pool is preempted
  // by the next step (docs/decisions/0024). 0 when nobody grows, so anything that fits is let in.
  uint32_t Spare() const;

 private:
  // Oldest first.
  std::vector<Sequence*> ByAge() const;
  bool Grow(Sequence& sequence);
  bool Grow(Sequence& sequence, Choice& choice);
  bool MakeRoom(const Sequence& sequence, const std::vector<uint32_t>& wanted);
  Sequence* Youngest() const;
  void Preempt(Sequence& sequence);
  bool Resume(Sequence& sequence);

  const Environment env_;
  std::vector<Sequence*> by_age_;  // while Settle runs
  uint32_t lacking_ = 0;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_ROOM_BY_AGE_H_
