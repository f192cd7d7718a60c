// A small cluster on virtual time for tests of the worker's cores: workers over the fake model (or
// a real one that the test brings) with in-process transports, and a router that does what the test
// says. Every message is serialized.
#ifndef BATON_WORKER_TEST_RIG_H_
#define BATON_WORKER_TEST_RIG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/cores.h"
#include "common/executor.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/random.h"
#include "common/sim_executor.h"
#include "decode_worker/decode_role.h"
#include "engine/fake_model_runner.h"
#include "engine/model_runner.h"
#include "kv/arena.h"
#include "kv/layout.h"
#include "kvtransfer/in_process_transport.h"
#include "kvtransfer/receive_table.h"
#include "kvtransfer/sink.h"
#include "kvtransfer/source.h"
#include "kvtransfer/transport.h"
#include "prefill_worker/prefill_role.h"
#include "text/vocab.h"
#include "worker/test_events.h"
#include "worker/worker_core.h"

namespace baton::worker {

inline constexpr Epoch kTestRouter{9, 9};
AttemptId RigAttempt(uint64_t request, uint32_t attempt = 1);

// Where sources find sinks: the sink's core and its executor, by address.
struct RigSinks {
  struct Entry {
    Executor* executor = nullptr;
    kvtransfer::TransferSink* sink = nullptr;
  };
  std::map<std::string, Entry> by_address;
  // Of every worker there was: wires between workers outlive them.
  std::vector<std::unique_ptr<SimExecutor>> executors;
};

class RigDialer : public kvtransfer::SinkDialer {
 public:
  RigDialer(Executor& executor, RigSinks& sinks) : executor_(executor), sinks_(sinks) {}
  std::unique_ptr<kvtransfer::SourceStream> Dial(
      const std::string& address, kvtransfer::SourceStream::Listener& listener) override;

 private:
  Executor& executor_;
  RigSinks& sinks_;
};

// What a worker serves.
struct RigModel {
  kv::KvLayout layout;
  const Vocab* vocab = nullptr;  // outlives the worker
  std::function<std::unique_ptr<engine::ModelRunner>(Executor&, kv::KvArena&)> make_runner;
};
RigModel FakeRigModel(engine::FakeModelRunner::Options options, uint32_t window = 0);

// A worker process. Its address is its name.
class RigWorker {
 public:
  struct Options {
    v1::Role role = v1::ROLE_DECODE;
    std::string name = "decode";
    uint64_t number = 1;   // makes its epoch
    uint32_t blocks = 64;  // of each group
    uint32_t step_tokens = 64;
    uint32_t max_queue = 1024;
    bool prefix_cache = true;
    Cores cores{};
    Duration reserve_patience = std::chrono::seconds(5);
    // Of the fake model: vocab_size is set by the rig.
    engine::FakeModelRunner::Options model{};
    uint32_t window = 0;  // of the fake model's second KV group
    // Instead of the fake model.
    std::optional<RigModel> real_model;
    // Of a source: instead of the rig's. They outlive the worker.
    kvtransfer::SinkDialer* dialer = nullptr;
    kvtransfer::Transport* transport = nullptr;
    // See WorkerOptions.
    std::function<void(std::string_view, std::string_view, std::string_view)> on_event{};
  };
  RigWorker(SimWorld& world, kvtransfer::InProcessNetwork& network, RigSinks& sinks,
            const Options& options);
  ~RigWorker();

  v1::Sink AsSink() const;
  uint32_t free_blocks() const { return core->pool().free_blocks()[0]; }
  bool all_free() const { return core->pool().free_blocks() == core->pool().capacity(); }

  const RigModel model;
  SimExecutor& executor;
  const Logger log = Logger::Silent();
  MetricsRegistry metrics;
  SeededRandom random;
  RigDialer dialer;
  RigSinks& sinks;
  std::unique_ptr<kv::KvArena> arena;
  std::unique_ptr<engine::ModelRunner> runner;
  std::unique_ptr<WorkerCore> core;
  kvtransfer::InProcessTransport transport;
  std::unique_ptr<kvtransfer::ReceiveTable> table;
  std::unique_ptr<kvtransfer::DataListener> listener;
  std::unique_ptr<PrefillRole> prefill;
  std::unique_ptr<DecodeRole> decode;
};

// One router's session with one worker.
class RigSession : public Stream<v1::SessionRequest, v1::SessionResponse>::Listener {
 public:
  // Opens the stream and says hello.
  RigSession(SimWorld& world, RigWorker& worker, const Epoch& router = kTestRouter,
             uint64_t number = 1, bool say_hello = true);
  ~RigSession() override;

  void Send(const v1::SessionRequest& request);
  void Heartbeat();
  void Attach(const AttemptId& attempt);
  void Cancel(const AttemptId& attempt);
  absl::Status Submit(const DecoderState& state, const std::vector<v1::Sink>& sinks = {});
  v1::SubmitRequest MakeSubmit(const DecoderState& state, const std::vector<v1::Sink>& sinks);
  // Ends the stream as a crash does.
  void Crash();

  // Events of an attempt, in order, without loads and hellos.
  std::vector<v1::WorkerEvent> EventsOf(const AttemptId& attempt) const;
  // Of Token events only.
  std::vector<TokenId> TokensOf(const AttemptId& attempt, uint32_t choice = 0) const;
  bool Finished(const AttemptId& attempt, size_t choices = 1) const;  // all of them, as the last

  std::vector<v1::SessionResponse> messages;
  std::optional<absl::Status> closed;
  std::function<void(const v1::WorkerEvent&)> on_event;  // optional
  // Says heartbeats by itself every second.
  bool beats = true;
  // What it sends arrives inside the call, not a turn later: for states that last one turn.
  bool at_once = false;

 private:
  void OnMessage(v1::SessionResponse message) override;
  void OnClosed(absl::Status status) override { closed = std::move(status); }
  void Beat();

  struct Forward;
  SimExecutor executor_;
  RigWorker& worker_;
  const Epoch router_;
  const uint64_t number_;
  uint64_t submits_ = 0;
  std::shared_ptr<Forward> forward_;
  std::unique_ptr<Stream<v1::SessionRequest, v1::SessionResponse>> stream_;
  TimerHandle beat_;
};

}  // namespace baton::worker

#endif  // BATON_WORKER_TEST_RIG_H_
