#include "kvtransfer/scripted_sinks.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "proto/mapping/ids.h"

namespace baton::kvtransfer {

using transfer::v1::SessionRequest;
using transfer::v1::SessionResponse;

namespace {

constexpr std::string_view kScheme = "scripted:";
constexpr uint32_t kLeaseMs = 10000;

}  // namespace

void ScriptedSink::Answer(bool takes_data) {
  if (session_ != nullptr && !std::exchange(greeted_, true)) {
    SessionResponse message;
    proto::Set(epoch_, *message.mutable_hello()->mutable_sink_epoch());
    message.mutable_hello()->set_protocol_version(kProtocolVersion);
    message.mutable_hello()->set_lease_ms(kLeaseMs);
    message.mutable_hello()->add_data_addresses(std::string(kScheme) + address_);
    Say(std::move(message));
  }
  if (data_ == nullptr || connected_) return;
  if (!takes_data) return EndData();
  connected_ = true;
  data_->OnConnected();
}

void ScriptedSink::Wait(const AttemptId& attempt) {
  SessionResponse message;
  proto::Set(attempt, *message.mutable_wait()->mutable_attempt());
  Say(std::move(message));
}

void ScriptedSink::Grant(const AttemptId& attempt, uint32_t groups) {
  SessionResponse message;
  proto::Set(attempt, *message.mutable_granted()->mutable_attempt());
  for (; groups > 0; --groups) message.mutable_granted()->add_first_needed_block(0);
  Say(std::move(message));
}

void ScriptedSink::Refuse(const AttemptId& attempt, Cause cause) {
  SessionResponse message;
  proto::Set(attempt, *message.mutable_refused()->mutable_attempt());
  message.mutable_refused()->set_cause(cause);
  Say(std::move(message));
}

void ScriptedSink::Revoke(const AttemptId& attempt, Cause cause) {
  SessionResponse message;
  proto::Set(attempt, *message.mutable_revoked()->mutable_attempt());
  message.mutable_revoked()->set_cause(cause);
  Say(std::move(message));
}

void ScriptedSink::EndSession() {
  if (session_ != nullptr) session_->OnClosed(absl::UnavailableError("the sink died"));
}

void ScriptedSink::ReplyToCommit(const AttemptId& attempt, Cause cause) {
  if (data_ != nullptr) data_->OnCommitReply(attempt, cause);
}

void ScriptedSink::CloseTransfer(const AttemptId& attempt) {
  if (data_ != nullptr) data_->OnTransferClosed(attempt);
}

void ScriptedSink::EndData() {
  if (data_ != nullptr) data_->OnEnded(absl::UnavailableError("the data connection ended"));
}

void ScriptedSink::Say(SessionResponse message) {
  if (session_ != nullptr) session_->OnMessage(std::move(message));
}

struct ScriptedSinks::Session : SourceStream {
  Session(ScriptedSinks& the_sinks, ScriptedSink& the_sink) : sinks(the_sinks), sink(the_sink) {}
  ~Session() override { sink.session_ = nullptr; }
  void Send(SessionRequest message) override {
    if (message.has_reserve()) sinks.told_("reserve(" + sink.address() + ")");
    if (!message.has_release()) return;
    const Cause cause = message.release().cause();
    const bool named = cause != worker::v1::CAUSE_UNSPECIFIED;
    sinks.told_("release(" + sink.address() +
                (named ? "," + std::string(CauseLabel(cause)) + ")" : ")"));
  }
  void Close(absl::Status) override {}
  ScriptedSinks& sinks;
  ScriptedSink& sink;
};

struct ScriptedSinks::Data : DataConnection {
  Data(ScriptedSinks& the_sinks, ScriptedSink& the_sink) : sinks(the_sinks), sink(the_sink) {}
  ~Data() override {
    sink.data_ = nullptr;
    sink.connected_ = false;
  }
  void Open(const AttemptId&, uint64_t) override { sinks.told_("open"); }
  void Send(const AttemptId&, const BlockRun&) override { sinks.told_("send"); }
  void Commit(const AttemptId&, CommitMessage) override { sinks.told_("commit"); }
  void Close(const AttemptId&) override { sinks.told_("close"); }
  uint64_t Backlog(const AttemptId&) const override { return 0; }
  ScriptedSinks& sinks;
  ScriptedSink& sink;
};

void ScriptedSinks::Answer(bool takes_data) {
  for (const auto& sink : sinks_) sink->Answer(takes_data);
}

ScriptedSink& ScriptedSinks::Find(std::string_view address) {
  const auto found = std::find_if(sinks_.begin(), sinks_.end(),
                                  [&](const auto& sink) { return sink->address() == address; });
  BATON_CHECK(found != sinks_.end());
  return **found;
}

std::unique_ptr<SourceStream> ScriptedSinks::Dial(const std::string& address,
                                                  SourceStream::Listener& listener) {
  last_ = &Find(address);
  last_->session_ = &listener;
  last_->greeted_ = false;
  return std::make_unique<Session>(*this, *last_);
}

std::unique_ptr<DataConnection> ScriptedSinks::Connect(const ConnectRequest& request,
                                                       DataConnection::Listener& listener) {
  ScriptedSink& sink = Find(std::string_view(request.address).substr(kScheme.size()));
  sink.data_ = &listener;
  return std::make_unique<Data>(*this, sink);
}

absl::StatusOr<std::unique_ptr<DataListener>> ScriptedSinks::Listen(ReceiveTable&) {
  return absl::UnimplementedError("these sinks have no blocks");
}

}  // namespace baton::kvtransfer
