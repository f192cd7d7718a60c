// Pieces for tests of KV transfer: small arenas with recognizable content, and control streams
// between two simulated nodes that really serialize.
#ifndef BATON_KVTRANSFER_TEST_RIG_H_
#define BATON_KVTRANSFER_TEST_RIG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/executor.h"
#include "common/ids.h"
#include "common/stream.h"
#include "kv/arena.h"
#include "kv/layout.h"

namespace baton::kvtransfer {

// Two KV groups, three layers, K and V of different sizes.
kv::KvLayout SmallLayout();

std::unique_ptr<kv::KvArena> MakeArena(const kv::KvLayout& layout, uint32_t blocks,
                                       bool shareable = false);
// Fills every piece with bytes that depend on seed, layer, arena, block and place.
void FillArena(kv::KvArena& arena, uint64_t seed);
// Whether `block` of `group` is equal in both.
bool SameBlock(const kv::KvArena& a, kv::BlockId block_a, const kv::KvArena& b, kv::BlockId block_b,
               uint32_t group);

AttemptId TestAttempt(uint64_t request, uint32_t attempt = 1);

// One end of a control stream in one process. Messages are serialized, carried by Post on the
// peer's executor and parsed there.
template <typename Out, typename In>
class PipeStream : public Stream<Out, In> {
 public:
  using Listener = typename Stream<Out, In>::Listener;
  using Peer = PipeStream<In, Out>;

  PipeStream(Executor& executor, Listener& listener)
      : state_(std::make_shared<State>(State{&executor, &listener})) {}
  ~PipeStream() override { End(absl::CancelledError("peer closed")); }

  static void Join(PipeStream& a, Peer& b) {
    a.peer_ = b.state_;
    b.peer_ = a.state_;
  }

  void Send(Out message) override {
    std::string bytes = message.SerializeAsString();
    Deliver([bytes = std::move(bytes)](auto& listener) {
      Out parsed;
      parsed.ParseFromString(bytes);
      listener.OnMessage(std::move(parsed));
    });
  }

  void Close(absl::Status status) override { End(std::move(status)); }

 private:
  template <typename, typename>
  friend class PipeStream;

  struct State {
    Executor* executor;
    Listener* listener;  // null: closed
  };

  template <typename Event>
  void Deliver(Event event) {
    const auto peer = peer_.lock();
    if (peer == nullptr || state_->listener == nullptr) return;
    peer->executor->Post([peer, event = std::move(event)] {
      if (peer->listener != nullptr) event(*peer->listener);
    });
  }

  void End(absl::Status status) {
    const auto peer = peer_.lock();
    if (peer != nullptr && state_->listener != nullptr) {
      peer->executor->Post([peer, status = std::move(status)] {
        auto* const listener = peer->listener;
        peer->listener = nullptr;
        if (listener != nullptr) listener->OnClosed(status);
      });
    }
    state_->listener = nullptr;
  }

  std::shared_ptr<State> state_;
  std::weak_ptr<typename Peer::State> peer_;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_TEST_RIG_H_
