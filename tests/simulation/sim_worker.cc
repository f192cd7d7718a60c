#include "tests/simulation/sim_worker.h"

#include <utility>

#include "common/check.h"
#include "common/test_metrics.h"
#include "kvtransfer/transport.h"
#include "text/test_vocab.h"

namespace baton::sim {

namespace {

std::unique_ptr<kv::KvArena> MakeArena(const SimWorkerOptions& options) {
  auto arena = kv::KvArena::Create(engine::FakeLayout(options.block_size, options.window),
                                   {.blocks = {options.blocks, options.blocks}});
  BATON_CHECK(arena.ok());
  return *std::move(arena);
}

using RouterPipe = PipeStream<worker::v1::SessionResponse, worker::v1::SessionRequest>;
using SinkPipe = PipeStream<transfer::v1::SessionResponse, transfer::v1::SessionRequest>;
using SourcePipe = PipeStream<transfer::v1::SessionRequest, transfer::v1::SessionResponse>;

}  // namespace

const Vocab& SimVocab() {
  static const Vocab* const vocab = [] {
    VocabData data = ByteVocabData();
    for (const char* text : {"<end>", "<stop>", "<over>", "<done>"}) AddEndToken(text, &data);
    absl::StatusOr<Vocab> made = Vocab::Create(data);
    BATON_CHECK(made.ok());
    return new Vocab(*std::move(made));
  }();
  return *vocab;
}

// Opens control sessions to sinks over the simulated network.
class SimWorker::Dialer : public kvtransfer::SinkDialer {
 public:
  Dialer(SimExecutor& self, const Environment& environment)
      : self_(self), network_(environment.network), directory_(environment.directory) {}

  std::unique_ptr<kvtransfer::SourceStream> Dial(
      const std::string& address, kvtransfer::SourceStream::Listener& listener) override {
    SimWorker* const sink = directory_(address);
    // Nobody there: a connection to oneself that breaks at once.
    std::shared_ptr<Pipe> pipe =
        network_.Connect(self_, sink == nullptr ? self_ : sink->executor());
    pipe->SetReceiver(
        0, ReceiverFor<transfer::v1::SessionRequest, transfer::v1::SessionResponse>(&listener));
    if (sink == nullptr) {
      pipe->Break();
    } else {
      pipe->Arrive([sink, pipe] { sink->AcceptSource(pipe); });
    }
    return std::make_unique<SourcePipe>(std::move(pipe), 0);
  }

 private:
  SimExecutor& self_;
  SimNetwork& network_;
  const Directory directory_;
};

SimWorker::SimWorker(const SimWorkerOptions& options, const Environment& environment)
    : options_(options),
      executor_(environment.world, options.name, options.clock_offset),
      random_(options.seed),
      arena_(MakeArena(options)),
      runner_({.vocab_size = SimVocab().size(),
               .step_cost = options.step_cost,
               .on_step = environment.on_step},
              executor_, *arena_),
      dialer_(std::make_unique<Dialer>(executor_, environment)),
      transport_(environment.data, options.name, executor_, arena_.get()),
      worker_options_(MakeOptions(environment)),
      core_(std::make_unique<worker::WorkerCore>(
          worker_options_, worker::WorkerCore::Environment{executor_, random_, runner_, SimVocab(),
                                                           metrics_, environment.log})) {
  if (options_.prefill) {
    prefill_ = std::make_unique<worker::PrefillRole>(
        core_->context(), *dialer_, std::vector<kvtransfer::Transport*>{&transport_});
    core_->SetRole(prefill_.get());
    return;
  }
  table_ = std::make_unique<kvtransfer::ReceiveTable>(worker_options_.epoch, *arena_, executor_,
                                                      2 * worker_options_.lease);
  auto listener = transport_.Listen(*table_);
  BATON_CHECK(listener.ok());
  listener_ = *std::move(listener);
  decode_ = std::make_unique<worker::DecodeRole>(core_->context(), *table_,
                                                 std::vector<std::string>{listener_->address()});
  core_->SetRole(decode_.get());
}

SimWorker::~SimWorker() { Die(); }

// Data listeners end before the sink, roles before the core.
void SimWorker::Die() {
  executor_.Kill();
  listener_.reset();
  decode_.reset();
  prefill_.reset();
  table_.reset();
  core_.reset();
}

bool SimWorker::Has(const AttemptId& attempt) const {
  return (prefill_ != nullptr && prefill_->Has(attempt)) ||
         (decode_ != nullptr && decode_->Has(attempt));
}

worker::WorkerOptions SimWorker::MakeOptions(const Environment& environment) {
  const kv::KvLayout& layout = arena_->layout();
  worker::WorkerOptions out;
  out.epoch = NewEpoch(random_);
  out.name = options_.name;
  out.role = options_.prefill ? worker::v1::ROLE_PREFILL : worker::v1::ROLE_DECODE;
  out.transfer_address = options_.name;
  out.model = "fake";
  out.numerics_id = {1, 2};
  out.layout_fp = layout.Fingerprint(kvtransfer::kProtocolVersion);
  out.vocab_hash = SimVocab().hash();
  out.vocab_size = static_cast<uint32_t>(SimVocab().size());
  out.context_length = options_.context_length;
  out.layout = layout;
  out.pool_blocks = {options_.blocks, options_.blocks};
  out.step_tokens = options_.step_tokens;
  out.max_running = options_.max_running;
  out.reserve_patience = options_.reserve_patience;
  if (options_.shares_cores) out.cores = {"machine", {0, 1}, 2};
  if (environment.adjust != nullptr) environment.adjust(out);
  BATON_CHECK(out.Validate().ok());
  return out;
}

void SimWorker::AcceptRouter(std::shared_ptr<Pipe> pipe) {
  auto* const listener = core_->AcceptRouter(std::make_unique<RouterPipe>(pipe, 1));
  pipe->SetReceiver(1,
                    ReceiverFor<worker::v1::SessionResponse, worker::v1::SessionRequest>(listener));
}

void SimWorker::AcceptSource(std::shared_ptr<Pipe> pipe) {
  BATON_CHECK(decode_ != nullptr);
  decode_->sink().Accept([&pipe](kvtransfer::SinkStream::Listener& listener) {
    pipe->SetReceiver(
        1, ReceiverFor<transfer::v1::SessionResponse, transfer::v1::SessionRequest>(&listener));
    return std::make_unique<SinkPipe>(pipe, 1);
  });
}

uint64_t SimWorker::Count(const char* metric) const {
  return static_cast<uint64_t>(MetricValue(metrics_, metric));
}

absl::Status SimWorker::Submit(const std::string& request) {
  worker::v1::SubmitRequest message;
  BATON_CHECK(message.ParseFromString(request));
  return core_->Submit(message);
}

absl::Status SimWorker::CheckIdle() const {
  const auto held = [this](const std::string& what) {
    return absl::InternalError(options_.name + " still holds " + what);
  };
  if (prefill_ != nullptr && prefill_->live() > 0) return held("attempts of a source");
  if (decode_ != nullptr && decode_->live() > 0) return held("attempts of a sink");
  if (decode_ != nullptr && decode_->sink().live() > 0) return held("transfers");
  if (table_ != nullptr && table_->live() > 0) return held("receiving transfers");
  if (!core_->idle()) return held("work");
  if (pool().free_blocks() != pool().capacity()) return held("blocks");
  return absl::OkStatus();
}

}  // namespace baton::sim
