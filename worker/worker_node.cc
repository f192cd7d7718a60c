#include "worker/worker_node.h"

#include <future>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "kvtransfer/shm_transport.h"
#include "kvtransfer/tcp_transport.h"
#include "text/vocab_from_gguf.h"
#include "worker/load_report.h"

namespace baton::worker {
namespace {

EventLoop::Options LoopOptions(MetricsRegistry& metrics) {
  EventLoop::Options options;
  options.name = "core";
  Counter counter =
      metrics.AddCounter("baton_slow_turns_total", "Turns of the core that took longer than 1 ms.")
          .Get();
  options.on_slow_turn = [counter](Duration) mutable { counter.Increment(); };
  return options;
}

bool Uses(const std::string& transport, const char* scheme) {
  return transport == "auto" || transport == scheme;
}

}  // namespace

absl::Status NodeOptions::Validate() const {
  if (transport != "auto" && transport != "tcp" && transport != "shm") {
    return absl::InvalidArgumentError("transport must be auto, tcp or shm, not " + transport);
  }
  if (kv_blocks == 0) return absl::InvalidArgumentError("kv-blocks must be at least 1");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WorkerNode>> WorkerNode::Load(const NodeOptions& options,
                                                             const Environment& environment) {
  BATON_RETURN_IF_ERROR(options.Validate());
  LoadReport report(environment.metrics, environment.log, options.model.path, SteadyNow());
  model::LoadOptions model_options = options.model;
  model_options.progress = [&](uint64_t packed, uint64_t all) {
    report.Packed(packed, all, SteadyNow());
  };
  BATON_ASSIGN_OR_RETURN(model::LoadedModel model, model::Load(model_options));
  report.StageTook("open", model.seconds.open);
  report.StageTook("hash", model.seconds.hash);
  report.StageTook("pack", model.seconds.pack);
  report.StageTook("tables", model.seconds.tables);
  BATON_ASSIGN_OR_RETURN(const VocabData data, VocabDataFromGguf(*model.file));
  BATON_ASSIGN_OR_RETURN(Vocab vocab, Vocab::Create(data));
  if (static_cast<uint32_t>(vocab.size()) != model.config.vocab_size) {
    return absl::InvalidArgumentError(options.model.path + ": the vocabulary has " +
                                      std::to_string(vocab.size()) + " tokens, the model's head " +
                                      std::to_string(model.config.vocab_size));
  }
  report.StageEnds("vocabulary");
  std::unique_ptr<WorkerNode> node(
      new WorkerNode(options, environment, std::move(model), std::move(vocab)));
  BATON_RETURN_IF_ERROR(node->options_.worker.Validate());
  BATON_RETURN_IF_ERROR(node->MakeArena());
  report.Done();
  return node;
}

WorkerNode::WorkerNode(const NodeOptions& options, const Environment& environment,
                       model::LoadedModel model, Vocab vocab)
    : options_(options),
      env_(environment),
      model_(std::move(model)),
      vocab_(std::move(vocab)),
      loop_(LoopOptions(environment.metrics)) {
  WorkerOptions& worker = options_.worker;
  worker.epoch = NewEpoch(random_);
  if (worker.model.empty()) worker.model = model_.config.name;
  worker.numerics_id = model_.numerics_id;
  worker.layout_fp = model_.layout.Fingerprint(kvtransfer::kProtocolVersion);
  worker.vocab_hash = vocab_.hash();
  worker.vocab_size = model_.config.vocab_size;
  worker.context_length = model_.config.context_length;
  worker.layout = model_.layout;
  worker.pool_blocks.assign(model_.layout.groups.size(), options_.kv_blocks);
}

WorkerNode::~WorkerNode() {
  Stop();
  loop_.Stop();
}

absl::Status WorkerNode::MakeArena() {
  kv::KvArena::Options options;
  options.blocks = options_.worker.pool_blocks;
  // Only a source shows its memory to others and ships blocks.
  const bool source = options_.worker.role == v1::ROLE_PREFILL;
  options.shareable = source && Uses(options_.transport, "shm");
  options.sealed = source;
  BATON_ASSIGN_OR_RETURN(arena_, kv::KvArena::Create(model_.layout, options));
  pages_ = std::make_unique<kv::ArenaPages>(
      *arena_,
      [env = env_, bytes = arena_->total_bytes(), begin = SteadyNow()](const absl::Status& status) {
        ReportKvMemory(env.metrics, env.log, status, {bytes, ToSeconds(SteadyNow() - begin)});
      });
  return absl::OkStatus();
}

absl::Status WorkerNode::Start(const std::string& transfer_address,
                               kvtransfer::SinkDialer& dialer) {
  BATON_CHECK(!started_);
  WorkerOptions& worker = options_.worker;
  worker.transfer_address = transfer_address;
  if (worker.name.empty()) {
    worker.name = (worker.role == v1::ROLE_PREFILL ? "prefill-" : "decode-") +
                  transfer_address.substr(transfer_address.rfind(':') + 1);
  }
  model::ModelRunner::Options runner_options;
  runner_options.max_rows = options_.worker.most_step_tokens();
  runner_options.seals = arena_->seals();
  runner_ = std::make_unique<model::ModelRunner>(model_, arena_->view(), loop_, runner_options);
  core_ = std::make_unique<WorkerCore>(
      options_.worker,
      WorkerCore::Environment{loop_, random_, *runner_, vocab_, env_.metrics, env_.log});
  MakeTransports();
  const absl::Status status = MakeRole(dialer);
  if (!status.ok()) {
    Teardown();
    return status;
  }
  started_ = true;
  loop_.Start();
  return absl::OkStatus();
}

void WorkerNode::MakeTransports() {
  const bool source = options_.worker.role == v1::ROLE_PREFILL;
  kv::KvArena* const arena = source ? arena_.get() : nullptr;
  if (Uses(options_.transport, "shm")) {
    transports_.push_back(std::make_unique<kvtransfer::ShmTransport>(
        kvtransfer::ShmTransport::Options{}, loop_, arena));
  }
  if (Uses(options_.transport, "tcp")) {
    kvtransfer::TcpTransport::Options tcp;
    tcp.listen_host = options_.data_listen.host;
    tcp.listen_port = static_cast<uint16_t>(options_.data_listen.port);
    tcp.advertise_host = options_.data_advertise.host;
    tcp.advertise_port = static_cast<uint16_t>(options_.data_advertise.port);
    transports_.push_back(std::make_unique<kvtransfer::TcpTransport>(tcp, loop_, arena));
  }
}

absl::Status WorkerNode::MakeRole(kvtransfer::SinkDialer& dialer) {
  if (options_.worker.role == v1::ROLE_PREFILL) {
    std::vector<kvtransfer::Transport*> transports;
    for (const auto& transport : transports_) transports.push_back(transport.get());
    prefill_role_ = std::make_unique<PrefillRole>(core_->context(), dialer, std::move(transports));
    core_->SetRole(prefill_role_.get());
    return absl::OkStatus();
  }
  table_ = std::make_unique<kvtransfer::ReceiveTable>(options_.worker.epoch, *arena_, loop_,
                                                      2 * options_.worker.lease);
  std::vector<std::string> addresses;
  for (const auto& transport : transports_) {
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<kvtransfer::DataListener> listener,
                           transport->Listen(*table_));
    addresses.push_back(listener->address());
    if (listener->port() != 0) {
      data_address_ = JoinHostPort(options_.data_listen.host, listener->port());
    }
    listeners_.push_back(std::move(listener));
  }
  decode_role_ = std::make_unique<DecodeRole>(core_->context(), *table_, std::move(addresses));
  core_->SetRole(decode_role_.get());
  return absl::OkStatus();
}

void WorkerNode::Stop() {
  if (!started_) return;
  started_ = false;
  std::promise<void> done;
  loop_.Post([this, &done] {
    Teardown();
    done.set_value();
  });
  done.get_future().wait();
}

void WorkerNode::Teardown() {
  listeners_.clear();
  prefill_role_.reset();
  decode_role_.reset();
  core_.reset();
  runner_.reset();
  table_.reset();
  transports_.clear();
}

}  // namespace baton::worker
