// What the two sides of a gRPC stream share: the queue of writes, reads one ahead of the core, and
// the core's handle. Private to grpc_stream.h.
#ifndef BATON_COMMON_RPC_STREAM_REACTOR_H_
#define BATON_COMMON_RPC_STREAM_REACTOR_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "common/executor.h"
#include "common/mutex.h"
#include "common/stream.h"

namespace baton::rpc {

// A peer that takes nothing while this much waits for it loses the stream.
inline constexpr size_t kMaxQueuedBytes = size_t{64} << 20;

namespace internal {

// What both sides share. `Base` is the reactor class of gRPC; it lives until OnDone (the reactor
// holds itself) and as long as the core's handle. Reads are one ahead of the core: the next starts
// when the listener has seen the last.
template <typename Base, typename Out, typename In>
class StreamReactor : public Base,
                      public std::enable_shared_from_this<StreamReactor<Base, Out, In>> {
 public:
  using Listener = typename Stream<Out, In>::Listener;

  explicit StreamReactor(Executor& executor) : executor_(executor) {}

  // Executor thread.
  void SetListener(Listener* listener) { listener_ = listener; }

  void ReadNext() {
    MutexLock lock(mutex_);
    if (!ended_) this->StartRead(&incoming_);
  }

  void Send(Out message) {
    MutexLock lock(mutex_);
    if (ended_ || closing_) return;
    queued_bytes_ += message.ByteSizeLong();
    queue_.push_back(std::move(message));
    if (queued_bytes_ > kMaxQueuedBytes) {
      Abort();
    } else {
      WriteNext();
    }
  }

  // The handle is gone.
  virtual void Drop() { Close(absl::CancelledError("stream dropped")); }

  // The listener is not called any more.
  void Close(const absl::Status& status) {
    listener_ = nullptr;
    MutexLock lock(mutex_);
    if (closing_ || ended_) return;
    closing_ = true;
    close_status_ = status;
    WriteNext();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return OnReadsEnded();
    executor_.Post([self = this->shared_from_this()] {
      if (self->listener_ != nullptr) self->listener_->OnMessage(std::move(self->incoming_));
      self->incoming_.Clear();
      self->ReadNext();
    });
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    writing_ = false;
    queued_bytes_ -= queue_.front().ByteSizeLong();
    queue_.pop_front();
    if (!ok) DropQueued();
    WriteNext();
  }

 protected:
  virtual void OnReadsEnded() = 0;
  // No write is in flight and none follows.
  virtual void EndWrites() BATON_REQUIRES(mutex_) = 0;
  virtual void Abort() BATON_REQUIRES(mutex_) = 0;

  void WriteNext() BATON_REQUIRES(mutex_) {
    if (writing_ || ended_) return;
    if (queue_.empty()) {
      if (closing_ && !writes_ended_) {
        writes_ended_ = true;
        EndWrites();
      }
      return;
    }
    writing_ = true;
    this->StartWrite(&queue_.front());
  }

  void DropQueued() BATON_REQUIRES(mutex_) {
    const size_t kept = writing_ ? 1 : 0;
    while (queue_.size() > kept) {
      queued_bytes_ -= queue_.back().ByteSizeLong();
      queue_.pop_back();
    }
  }

  void PostClosed(absl::Status status) {
    executor_.Post([self = this->shared_from_this(), status = std::move(status)] {
      Listener* listener = std::exchange(self->listener_, nullptr);
      if (listener != nullptr) listener->OnClosed(status);
    });
  }

  Executor& executor_;
  Listener* listener_ = nullptr;  // executor thread only

  Mutex mutex_;
  std::deque<Out> queue_ BATON_GUARDED_BY(mutex_);  // front: being written when writing_
  size_t queued_bytes_ BATON_GUARDED_BY(mutex_) = 0;
  bool writing_ BATON_GUARDED_BY(mutex_) = false;
  bool closing_ BATON_GUARDED_BY(mutex_) = false;
  bool writes_ended_ BATON_GUARDED_BY(mutex_) = false;
  bool ended_ BATON_GUARDED_BY(mutex_) = false;  // no operation may be started any more
  absl::Status close_status_ BATON_GUARDED_BY(mutex_);

 private:
  In incoming_;  // of the read in flight, then of the executor until the next read
};

// The core's handle.
template <typename Reactor, typename Out, typename In>
class StreamHandle : public Stream<Out, In> {
 public:
  explicit StreamHandle(std::shared_ptr<Reactor> reactor) : reactor_(std::move(reactor)) {}
  ~StreamHandle() override { reactor_->Drop(); }

  void Send(Out message) override { reactor_->Send(std::move(message)); }
  void Close(absl::Status status) override { reactor_->Close(status); }

 private:
  std::shared_ptr<Reactor> reactor_;
};

}  // namespace internal

}  // namespace baton::rpc

#endif  // BATON_COMMON_RPC_STREAM_REACTOR_H_
