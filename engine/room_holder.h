// Who holds blocks of the engine's pool beside its sequences, and may be asked to give them up: a
// decode worker's reservations that are granted and not committed.
#ifndef BATON_ENGINE_ROOM_HOLDER_H_
#define BATON_ENGINE_ROOM_HOLDER_H_

#include <cstdint>

#include "common/time.h"

namespace baton::engine {

enum class GaveUp : uint8_t {
  kNobody,  // none of them is so young, and none of their blocks are on the way back
  kComing,  // blocks of one of them, asked now or over before, come back when they are quiesced
};

// Owner thread: the engine's executor.
class RoomHolder {
 public:
  virtual ~RoomHolder() = default;

  // The youngest one that was admitted at `than` or later gives up its blocks. While blocks of any
  // are on the way back, nobody gives up more: the answer is kComing.
  //
  // Called in a turn of the engine, for a sequence that needs a block when none is free. After
  // kNobody the engine's youngest sequence gives way; after kComing the one that needs the block
  // waits, keeps what it has, and asks again when the pool says that blocks became free. So nothing
  // may keep them from coming back but what ends by itself (a lease), and never the engine.
  //
  // May emit events; gives no block back inside the call and may not call the engine.
  virtual GaveUp GiveUpYoungest(Time than) = 0;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_ROOM_HOLDER_H_
