// The wires of a simulated cluster: every message is serialized, travels for a seeded time, and is
// parsed again. Messages of one direction of one connection keep their order, nothing else does.
#ifndef BATON_TESTS_SIMULATION_SIM_NETWORK_H_
#define BATON_TESTS_SIMULATION_SIM_NETWORK_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/hash.h"
#include "common/ids.h"
#include "common/random.h"
#include "common/sim_executor.h"
#include "common/stream.h"

namespace baton::sim {

class SimNetwork;

// One connection between two nodes; ends 0 (opened it) and 1. Shared by its ends and by what is on
// the way.
class Pipe : public std::enable_shared_from_this<Pipe> {
 public:
  struct Receiver {
    std::function<void(std::string)> on_message;
    std::function<void(absl::Status)> on_closed;
  };

  Pipe(SimNetwork& network, SimExecutor& opener, SimExecutor& accepter);

  void SetReceiver(int end, Receiver receiver);
  // Runs `task` on end 1's node as the first thing that arrives there.
  void Arrive(std::function<void()> task);
  void Send(int from, std::string bytes);
  // The other end hears `status` after what was sent before; this one hears nothing any more.
  void Close(int from, absl::Status status);
  // Breaks in the middle: both ends hear of it, what is on the way is lost.
  void Break();
  bool Touches(const SimExecutor& node) const;
  bool logging() const;
  void Log(int from, const std::string& message) const;

 private:
  struct End {
    SimExecutor* node = nullptr;
    Receiver receiver;
    bool open = true;   // still hears
    Time last_arrival;  // of what was sent to it
  };
  void Deliver(int to, std::function<void(End&)> what);
  void TellClosed(int to, const absl::Status& status);

  SimNetwork& network_;
  std::array<End, 2> ends_;
  uint64_t breaks_ = 0;  // what was sent before the last one never arrives
};

// One end of a pipe as cores see it. `received` must be set before messages arrive.
template <typename Out, typename In>
class PipeStream : public Stream<Out, In> {
 public:
  PipeStream(std::shared_ptr<Pipe> pipe, int end) : pipe_(std::move(pipe)), end_(end) {}
  ~PipeStream() override { pipe_->Close(end_, absl::CancelledError("the stream was dropped")); }

  void Send(Out message) override {
    if (pipe_->logging()) pipe_->Log(end_, message.ShortDebugString());
    pipe_->Send(end_, message.SerializeAsString());
  }
  void Close(absl::Status status) override { pipe_->Close(end_, std::move(status)); }

 private:
  const std::shared_ptr<Pipe> pipe_;
  const int end_;
};

template <typename Out, typename In>
Pipe::Receiver ReceiverFor(typename Stream<Out, In>::Listener* listener) {
  return {[listener](const std::string& bytes) {
            In message;
            BATON_CHECK(message.ParseFromString(bytes));
            listener->OnMessage(std::move(message));
          },
          [listener](absl::Status status) { listener->OnClosed(std::move(status)); }};
}

class SimNetwork {
 public:
  struct Options {
    Duration min_delay = std::chrono::microseconds(20);
    Duration max_delay = std::chrono::microseconds(600);
    // One message in so many is held up much longer; 0: none.
    uint64_t slow_every = 0;
    Duration slow_delay = std::chrono::milliseconds(400);
  };

  SimNetwork(SimWorld& world, uint64_t seed, const Options& options);

  std::shared_ptr<Pipe> Connect(SimExecutor& opener, SimExecutor& accepter);

  // Breaks every connection that this node has now.
  void BreakAll(const SimExecutor& node);
  // Those of these two alone.
  void BreakBetween(const SimExecutor& a, const SimExecutor& b);

  // When something sent now arrives.
  Time Arrival();
  // Runs `task` on `node`, then (as an event of its own).
  void At(Time when, SimExecutor& node, std::function<void()> task);

  // Everything that arrives goes into the trace.
  void Trace(std::string_view kind, std::string_view where, std::string_view bytes);
  Digest trace() const { return trace_; }
  uint64_t deliveries() const { return deliveries_; }
  // Optional: told of each arrival, and of each message when it is sent.
  void set_log(std::function<void(const std::string&)> log) { log_ = std::move(log); }
  bool logging() const { return log_ != nullptr; }
  void Log(const std::string& line) const;

  SimWorld& world() { return world_; }
  Random& random() { return random_; }

 private:
  SimWorld& world_;
  SeededRandom random_;
  const Options options_;
  std::vector<std::weak_ptr<Pipe>> pipes_;
  Digest trace_;
  uint64_t deliveries_ = 0;
  std::function<void(const std::string&)> log_;
};

}  // namespace baton::sim

#endif  // BATON_TESTS_SIMULATION_SIM_NETWORK_H_
