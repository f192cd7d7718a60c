// An ordered, reliable, bidirectional stream of messages between two cores: a gRPC stream in
// production, the simulated network (which serializes every message) in the simulator.
#ifndef BATON_COMMON_STREAM_H_
#define BATON_COMMON_STREAM_H_

#include "absl/status/status.h"

namespace baton {

// Owner thread: the core's executor; the listener is called there, never inside a call to the
// stream.
template <typename Out, typename In>
class Stream {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnMessage(In message) = 0;
    // Once, after the last OnMessage, unless this side closed or destroyed the stream.
    virtual void OnClosed(absl::Status status) = 0;
  };

  // Closes it; the listener is not called any more.
  virtual ~Stream() = default;

  // Never blocks. What is sent after the end is dropped.
  virtual void Send(Out message) = 0;

  // Ends the stream; the peer sees OnClosed(status) after what was sent before.
  virtual void Close(absl::Status status) = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_STREAM_H_
