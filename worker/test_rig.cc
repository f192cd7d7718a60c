#include "worker/test_rig.h"

#include <utility>

#include "common/check.h"
#include "engine/engine_fixture.h"
#include "kvtransfer/test_rig.h"
#include "proto/mapping/decoder_state.h"
#include "proto/mapping/ids.h"

namespace baton::worker {
namespace {

constexpr uint32_t kContext = 512;

WorkerOptions MakeOptions(const RigWorker::Options& rig, const RigModel& model) {
  WorkerOptions options;
  options.epoch = {100 + rig.number, 1};
  options.name = rig.name;
  options.role = rig.role;
  options.transfer_address = rig.name;
  options.model = "fake";
  options.numerics_id = {5, 5};
  options.layout = model.layout;
  options.layout_fp = options.layout.Fingerprint(kvtransfer::kProtocolVersion);
  options.vocab_hash = model.vocab->hash();
  options.vocab_size = static_cast<uint32_t>(model.vocab->size());
  options.context_length = kContext;
  options.pool_blocks.assign(options.layout.groups.size(), rig.blocks);
  options.step_tokens = rig.step_tokens;
  options.max_queue = rig.max_queue;
  options.prefix_cache = rig.prefix_cache;
  options.cores = rig.cores;
  options.reserve_patience = rig.reserve_patience;
  options.on_event = rig.on_event;
  return options;
}

std::unique_ptr<kv::KvArena> MakeRigArena(const kv::KvLayout& layout,
                                          const RigWorker::Options& rig) {
  kv::KvArena::Options options;
  options.blocks.assign(layout.groups.size(), rig.blocks);
  options.sealed = rig.role == v1::ROLE_PREFILL;
  auto arena = kv::KvArena::Create(layout, options);
  BATON_CHECK(arena.ok());
  return *std::move(arena);
}

}  // namespace

RigModel FakeRigModel(engine::FakeModelRunner::Options options, uint32_t window) {
  options.vocab_size = engine::FixtureVocab().size();
  return {engine::FakeLayout(16, window), &engine::FixtureVocab(),
          [options](Executor& executor, kv::KvArena& arena) {
            return std::make_unique<engine::FakeModelRunner>(options, executor, arena);
          }};
}

AttemptId RigAttempt(uint64_t request, uint32_t attempt) { return {kTestRouter, request, attempt}; }

std::unique_ptr<kvtransfer::SourceStream> RigDialer::Dial(
    const std::string& address, kvtransfer::SourceStream::Listener& listener) {
  using Client =
      kvtransfer::PipeStream<transfer::v1::SessionRequest, transfer::v1::SessionResponse>;
  using Server =
      kvtransfer::PipeStream<transfer::v1::SessionResponse, transfer::v1::SessionRequest>;
  auto client = std::make_unique<Client>(executor_, listener);
  const auto found = sinks_.by_address.find(address);
  if (found == sinks_.by_address.end()) return client;  // a hole: nobody answers
  const RigSinks::Entry& entry = found->second;
  entry.sink->Accept([&](kvtransfer::SinkStream::Listener& sink_listener) {
    auto server = std::make_unique<Server>(*entry.executor, sink_listener);
    Client::Join(*client, *server);
    return server;
  });
  return client;
}

RigWorker::RigWorker(SimWorld& world, kvtransfer::InProcessNetwork& network, RigSinks& rig_sinks,
                     const Options& options)
    : model(options.real_model.has_value() ? *options.real_model
                                           : FakeRigModel(options.model, options.window)),
      executor(*rig_sinks.executors.emplace_back(std::make_unique<SimExecutor>(
          world, options.name, std::chrono::seconds(1000 * options.number)))),
      random(options.number),
      dialer(executor, rig_sinks),
      sinks(rig_sinks),
      arena(MakeRigArena(model.layout, options)),
      runner(model.make_runner(executor, *arena)),
      core(std::make_unique<WorkerCore>(
          MakeOptions(options, model),
          WorkerCore::Environment{executor, random, *runner, *model.vocab, metrics, log})),
      transport(network, options.name, executor, arena.get()) {
  if (options.role == v1::ROLE_PREFILL) {
    kvtransfer::Transport* const data =
        options.transport != nullptr ? options.transport : &transport;
    prefill = std::make_unique<PrefillRole>(core->context(),
                                            options.dialer != nullptr ? *options.dialer : dialer,
                                            std::vector<kvtransfer::Transport*>{data});
    core->SetRole(prefill.get());
    return;
  }
  table = std::make_unique<kvtransfer::ReceiveTable>(core->options().epoch, *arena, executor,
                                                     2 * core->options().lease);
  listener = *transport.Listen(*table);
  decode = std::make_unique<DecodeRole>(core->context(), *table,
                                        std::vector<std::string>{listener->address()});
  core->SetRole(decode.get());
  sinks.by_address[options.name] = {&executor, &decode->sink()};
}

RigWorker::~RigWorker() {
  sinks.by_address.erase(core->options().name);
  listener.reset();
  prefill.reset();
  decode.reset();
  core.reset();
  executor.Kill();
}

v1::Sink RigWorker::AsSink() const {
  v1::Sink sink;
  sink.set_address(core->options().transfer_address);
  proto::Set(core->options().epoch, *sink.mutable_epoch());
  return sink;
}

// The worker's core hands out its listener only when it has the stream.
struct RigSession::Forward : RouterStream::Listener {
  void OnMessage(v1::SessionRequest message) override { to->OnMessage(std::move(message)); }
  void OnClosed(absl::Status status) override { to->OnClosed(std::move(status)); }
  RouterStream::Listener* to = nullptr;
};

RigSession::RigSession(SimWorld& world, RigWorker& worker, const Epoch& router, uint64_t number,
                       bool say_hello)
    : executor_(world, "router"),
      worker_(worker),
      router_(router),
      number_(number),
      forward_(std::make_shared<Forward>()) {
  using Client = kvtransfer::PipeStream<v1::SessionRequest, v1::SessionResponse>;
  using Server = kvtransfer::PipeStream<v1::SessionResponse, v1::SessionRequest>;
  auto client = std::make_unique<Client>(executor_, *this);
  auto server = std::make_unique<Server>(worker.executor, *forward_);
  Client::Join(*client, *server);
  forward_->to = worker.core->AcceptRouter(std::move(server));
  stream_ = std::move(client);
  if (!say_hello) return;
  v1::SessionRequest request;
  proto::Set(router, *request.mutable_hello()->mutable_router_epoch());
  request.mutable_hello()->set_session_number(number);
  request.mutable_hello()->set_protocol_version(kProtocolVersion);
  Send(request);
  Beat();
}

RigSession::~RigSession() = default;

void RigSession::Beat() {
  beat_ = executor_.PostAfter(std::chrono::seconds(1), [this] {
    if (beats && !closed.has_value()) Heartbeat();
    Beat();
  });
}

void RigSession::OnMessage(v1::SessionResponse message) {
  messages.push_back(message);
  if (!on_event) return;
  for (const v1::WorkerEvent& event : message.events()) on_event(event);
}

void RigSession::Send(const v1::SessionRequest& request) {
  if (stream_ == nullptr || closed.has_value()) return;
  if (at_once) return forward_->OnMessage(request);
  stream_->Send(request);
}

void RigSession::Heartbeat() {
  v1::SessionRequest request;
  request.mutable_heartbeat();
  Send(request);
}

void RigSession::Attach(const AttemptId& attempt) {
  v1::SessionRequest request;
  proto::Set(attempt, *request.mutable_attach()->mutable_attempt());
  Send(request);
}

void RigSession::Cancel(const AttemptId& attempt) {
  v1::SessionRequest request;
  proto::Set(attempt, *request.mutable_cancel()->mutable_attempt());
  Send(request);
}

v1::SubmitRequest RigSession::MakeSubmit(const DecoderState& state,
                                         const std::vector<v1::Sink>& sinks) {
  v1::SubmitRequest request;
  *request.mutable_state() = proto::ToProto(state);
  request.set_session_number(number_);
  request.set_submit_number(++submits_);
  proto::Set(worker_.core->options().epoch, *request.mutable_worker_epoch());
  for (const v1::Sink& sink : sinks) *request.add_sinks() = sink;
  return request;
}

absl::Status RigSession::Submit(const DecoderState& state, const std::vector<v1::Sink>& sinks) {
  return worker_.core->Submit(MakeSubmit(state, sinks));
}

void RigSession::Crash() {
  if (at_once && stream_ != nullptr) forward_->OnClosed(absl::UnavailableError("the router died"));
  stream_.reset();
}

std::vector<v1::WorkerEvent> RigSession::EventsOf(const AttemptId& attempt) const {
  std::vector<v1::WorkerEvent> events;
  for (const v1::SessionResponse& message : messages) {
    for (const v1::WorkerEvent& event : message.events()) {
      if (AttemptOf(event) == attempt) events.push_back(event);
    }
  }
  return events;
}

std::vector<TokenId> RigSession::TokensOf(const AttemptId& attempt, uint32_t choice) const {
  std::vector<TokenId> tokens;
  for (const v1::WorkerEvent& event : EventsOf(attempt)) {
    if (event.has_token() && event.token().choice() == choice) {
      tokens.push_back(event.token().token());
    }
  }
  return tokens;
}

bool RigSession::Finished(const AttemptId& attempt, size_t choices) const {
  size_t ended = 0;
  bool last = false;
  for (const v1::WorkerEvent& event : EventsOf(attempt)) {
    last = event.token().finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
    ended += last ? 1 : 0;
  }
  return last && ended == choices;
}

}  // namespace baton::worker
