#include "tests/simulation/sim_router.h"

#include <utility>

#include "router/worker_client.h"

namespace baton::sim {

namespace {

using router::WorkerSession;
using worker::v1::SubmitRequest;

class SimWorkerClient : public router::WorkerClient {
 public:
  // `submits`: counts by request.
  SimWorkerClient(std::string address, SimExecutor& self, SimNetwork& network, Directory directory,
                  std::map<uint64_t, uint32_t>& submits)
      : address_(std::move(address)),
        self_(self),
        network_(network),
        directory_(std::move(directory)),
        submits_(submits) {}

  std::unique_ptr<WorkerSession> OpenSession(WorkerSession::Listener& listener) override {
    SimWorker* const worker = directory_(address_);
    // Nobody there: a connection to oneself that breaks at once.
    std::shared_ptr<Pipe> pipe =
        network_.Connect(self_, worker == nullptr ? self_ : worker->executor());
    pipe->SetReceiver(
        0, ReceiverFor<worker::v1::SessionRequest, worker::v1::SessionResponse>(&listener));
    if (worker == nullptr) {
      pipe->Break();
    } else {
      pipe->Arrive([worker, pipe] { worker->AcceptRouter(pipe); });
    }
    return std::make_unique<PipeStream<worker::v1::SessionRequest, worker::v1::SessionResponse>>(
        std::move(pipe), 0);
  }

  void Submit(SubmitRequest request, Duration timeout,
              std::function<void(absl::Status)> done) override {
    ++submits_[request.state().attempt().request()];
    auto call = std::make_shared<Call>();
    call->done = std::move(done);
    call->timeout = self_.PostAfter(
        timeout, [call] { Answer(*call, absl::DeadlineExceededError("no answer to Submit")); });
    const std::weak_ptr<int> alive = alive_;
    SimWorker* const worker = directory_(address_);
    if (worker == nullptr) {
      return network_.At(network_.Arrival(), self_, [call, alive] {
        if (!alive.expired()) Answer(*call, absl::UnavailableError("nobody there"));
      });
    }
    // A dead worker's executor runs nothing: the call times out, unless its connection broke first.
    network_.At(network_.Arrival(), worker->executor(),
                [this, call, alive, worker, bytes = request.SerializeAsString()] {
                  network_.Trace("submit", worker->options().name, bytes);
                  const absl::Status status = worker->Submit(bytes);
                  network_.At(network_.Arrival(), self_, [this, call, alive, status] {
                    if (alive.expired()) return;
                    network_.Trace("answer", self_.name(), std::string(status.message()));
                    Answer(*call, status);
                  });
                });
  }

 private:
  struct Call {
    std::function<void(absl::Status)> done;
    TimerHandle timeout;
  };
  static void Answer(Call& call, absl::Status status) {
    call.timeout.Cancel();
    const auto done = std::exchange(call.done, nullptr);
    if (done != nullptr) done(std::move(status));
  }

  const std::string address_;
  SimExecutor& self_;
  SimNetwork& network_;
  const Directory directory_;
  std::map<uint64_t, uint32_t>& submits_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace

SimRouter::SimRouter(const Options& options, SimWorld& world, SimNetwork& network,
                     const Logger& log, const Directory& directory)
    : executor_(world, options.name, options.clock_offset) {
  SeededRandom random(options.seed);
  epoch_ = NewEpoch(random);
  router::CoreOptions core;
  core.epoch = epoch_;
  for (const std::string& address : options.workers) core.workers.push_back({address});
  core.vocab_hash = SimVocab().hash();
  core.on_transition = options.on_transition;
  core_ = std::make_unique<router::RouterCore>(
      std::move(core), executor_,
      [this, &network, directory](const std::string& address) {
        return std::make_unique<SimWorkerClient>(address, executor_, network, directory, submits_);
      },
      metrics_, log);
  core_->Start();
}

}  // namespace baton::sim
