#include "kvtransfer/scripted_source.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "kvtransfer/frame_buffer.h"
#include "proto/mapping/ids.h"

namespace baton::kvtransfer {

using transfer::v1::SessionRequest;
using transfer::v1::SessionResponse;

struct ScriptedSource::Stream : SinkStream {
  explicit Stream(ScriptedSource& the_owner) : owner(&the_owner) {}
  ~Stream() override { Close({}); }
  void Send(SessionResponse message) override {
    if (owner != nullptr) owner->heard.push_back(std::move(message));
  }
  void Close(absl::Status) override {
    if (owner != nullptr) std::exchange(owner, nullptr)->listener_ = nullptr;
  }
  ScriptedSource* owner;
};

ScriptedSource::ScriptedSource(TransferSink& sink, ReceiveTable& table, const Options& options)
    : table_(table), options_(options) {
  sink.Accept([this](SinkStream::Listener& to) {
    listener_ = &to;
    return std::make_unique<Stream>(*this);
  });
  SessionRequest message;
  auto& hello = *message.mutable_hello();
  proto::Set(options.source, *hello.mutable_source_epoch());
  proto::Set(options.sink, *hello.mutable_sink_epoch());
  hello.set_protocol_version(kProtocolVersion);
  proto::Set(options.layout_fp, *hello.mutable_layout_fp());
  proto::Set(options.numerics_id, *hello.mutable_numerics_id());
  listener_->OnMessage(std::move(message));
}

ScriptedSource::~ScriptedSource() {
  EndData();
  EndSession();
}

void ScriptedSource::Reserve(const transfer::v1::Reserve& reserve) {
  SessionRequest message;
  *message.mutable_reserve() = reserve;
  proto::Set(options_.layout_fp, *message.mutable_reserve()->mutable_layout_fp());
  proto::Set(options_.numerics_id, *message.mutable_reserve()->mutable_numerics_id());
  listener_->OnMessage(std::move(message));
}

void ScriptedSource::Release(const AttemptId& attempt, Cause cause) {
  SessionRequest message;
  proto::Set(attempt, *message.mutable_release()->mutable_attempt());
  message.mutable_release()->set_cause(cause);
  listener_->OnMessage(std::move(message));
}

void ScriptedSource::EndSession() {
  if (listener_ != nullptr) listener_->OnClosed(absl::UnavailableError("the source died"));
}

void ScriptedSource::Open(const AttemptId& attempt) {
  if (connection_ == nullptr) {
    connection_ = std::make_unique<ReceiveConnection>(table_, [] {});
    BATON_CHECK(Feed(FrameType::kHello,
                     Encode(HelloFrame{kProtocolVersion, options_.source, options_.sink}))
                    .ok());
  }
  if (std::find(opened_.begin(), opened_.end(), attempt) != opened_.end()) return;
  opened_.push_back(attempt);
  BATON_CHECK(Feed(FrameType::kOpen, Encode(OpenFrame{attempt, SecretOf(attempt)})).ok());
}

void ScriptedSource::Ship(const AttemptId& attempt, uint32_t blocks) {
  Open(attempt);
  const kv::KvLayout& layout = table_.layout();
  for (uint32_t layer = 0; layer < layout.layers.size(); ++layer) {
    for (uint32_t arena = 0; arena < layout.layers[layer].arenas.size(); ++arena) {
      Landing piece = *connection_->BeginPiece(Header(attempt, layer, arena, blocks));
      connection_->EndPiece(piece, ReceiveConnection::Verdict::kIntact);
    }
  }
}

void ScriptedSource::ShipDamaged(const AttemptId& attempt) {
  Open(attempt);
  Landing piece = *connection_->BeginPiece(Header(attempt, 0, 1, 1));
  connection_->EndPiece(piece, ReceiveConnection::Verdict::kDamaged);
}

void ScriptedSource::Enter(const AttemptId& attempt) {
  Open(attempt);
  landing_ = *connection_->BeginPiece(Header(attempt, 0, 0, 1));
  BATON_CHECK(connection_->Enter(*landing_));
}

void ScriptedSource::Leave() {
  if (landing_.has_value()) connection_->Leave(*landing_);
  landing_.reset();
}

absl::Status ScriptedSource::Commit(const AttemptId& attempt, CommitMessage message) {
  Open(attempt);
  return Feed(FrameType::kCommit, Encode(CommitFrame{attempt, std::move(message)}));
}

void ScriptedSource::CloseTransfer(const AttemptId& attempt) {
  Open(attempt);
  BATON_CHECK(Feed(FrameType::kClose, EncodeClose(attempt)).ok());
}

void ScriptedSource::EndData() {
  Leave();
  connection_.reset();
  opened_.clear();
}

std::vector<uint32_t> ScriptedSource::TakeReplies() {
  std::vector<uint32_t> replies;
  if (connection_ == nullptr) return replies;
  FrameBuffer buffer;
  buffer.Append(connection_->TakeOutbox());
  while (const auto frame = *buffer.Next()) {
    if (frame->type == FrameType::kCommitReply) {
      replies.push_back(DecodeCommitReply(frame->body)->cause);
    }
  }
  return replies;
}

absl::Status ScriptedSource::Feed(FrameType type, const std::string& frame) {
  const auto body =
      std::string_view(frame).substr(kPreludeBytes, frame.size() - kPreludeBytes - kTrailerBytes);
  return connection_->OnFrame(type, body);
}

uint64_t ScriptedSource::SecretOf(const AttemptId& attempt) const {
  uint64_t secret = 0;
  for (const SessionResponse& message : heard) {
    if (message.has_granted() && proto::Get(message.granted().attempt()) == attempt) {
      secret = message.granted().secret();
    }
  }
  return secret;
}

PieceHeader ScriptedSource::Header(const AttemptId& attempt, uint32_t layer, uint32_t arena,
                                   uint32_t blocks) const {
  const kv::KvLayout& layout = table_.layout();
  const auto bytes = static_cast<uint32_t>(layout.PieceBytes(layer, arena) * blocks);
  return {
      attempt, options_.source, options_.sink, layer, layout.layers[layer].group, arena, 0, 0, 0,
      bytes};
}

}  // namespace baton::kvtransfer
