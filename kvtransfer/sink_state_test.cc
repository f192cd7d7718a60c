// The table of sink_state.h, cell by cell, against a scripted source.
#include "kvtransfer/sink_state.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "common/hash.h"
#include "common/random.h"
#include "common/sim_executor.h"
#include "gtest/gtest.h"
#include "kvtransfer/receive_connection.h"
#include "kvtransfer/sink.h"
#include "kvtransfer/test_rig.h"
#include "proto/mapping/ids.h"

namespace baton::kvtransfer {
namespace {

using transfer::v1::SessionRequest;
using transfer::v1::SessionResponse;

constexpr Epoch kSource{1, 1};
constexpr Epoch kSink{2, 2};
const AttemptId kAttempt = TestAttempt(1);
const std::vector<TokenId> kPrompt = {1, 2, 3};

struct ScriptedStream : SinkStream {
  explicit ScriptedStream(std::vector<SessionResponse>& messages) : sent(messages) {}
  void Send(SessionResponse message) override { sent.push_back(std::move(message)); }
  void Close(absl::Status) override {}
  std::vector<SessionResponse>& sent;
};

// kGone: not known to the sink.
enum class Start { kGone, kAsked, kWaiting, kGranted, kQuiescing };

class Rig : public TransferSink::Host {
 public:
  Rig() {
    TransferSink::Options options;
    options.epoch = kSink;
    options.vocab_size = 100;
    options.context_length = 100;
    options.num_groups = 2;
    sink = std::make_unique<TransferSink>(options, executor, table, tombstones, random, *this,
                                          nullptr);
    sink->Accept([this](SinkStream::Listener& to) {
      listener = &to;
      return std::make_unique<ScriptedStream>(sent);
    });
    SessionRequest message;
    auto& hello = *message.mutable_hello();
    proto::Set(kSource, *hello.mutable_source_epoch());
    proto::Set(kSink, *hello.mutable_sink_epoch());
    hello.set_protocol_version(kProtocolVersion);
    hello.mutable_layout_fp();
    hello.mutable_numerics_id();
    listener->OnMessage(message);
  }
  ~Rig() override {
    landing.reset();
    connection.reset();
    sink.reset();
  }

  void Bring(Start start) {
    if (start == Start::kGone) return;
    Apply(SinkEvent::kReserve);
    if (start == Start::kAsked) return;
    if (start == Start::kWaiting) return Apply(SinkEvent::kHostWait);
    Apply(SinkEvent::kHostGrant);
    if (start == Start::kGranted) return;
    // Dropped while its thread is inside a block.
    Connect();
    Enter();
    Apply(SinkEvent::kHostDrop);
    Run();
    sent.clear();
  }

  void Apply(SinkEvent event) {
    switch (event) {
      case SinkEvent::kReserve:
        return Reserve();
      case SinkEvent::kRelease:
        return Release();
      case SinkEvent::kHostGrant:
        return sink->Grant(kAttempt, {{0, {1}}, {0, {2}}});
      case SinkEvent::kHostWait:
        return sink->Wait(kAttempt);
      case SinkEvent::kHostRefuse:
        return sink->Refuse(kAttempt, worker::v1::CAUSE_NO_ROOM);
      case SinkEvent::kHostDrop:
        return sink->Drop(kAttempt, worker::v1::CAUSE_CANCELLED);
      case SinkEvent::kGoodCommit:
        return Commit(true);
      case SinkEvent::kBadCommit:
        return Commit(false);
      case SinkEvent::kTransferFailed:
        return Damage();
      case SinkEvent::kDataEnded:
        return EndData();
      case SinkEvent::kSessionEnded:
        return listener->OnClosed(absl::UnavailableError(""));
      case SinkEvent::kQuiesced:
        return LeaveAll();
    }
  }

  void Run() { world.RunFor(std::chrono::milliseconds(1)); }

  // State, what the host was told and what went to the source.
  std::string Result() {
    Run();
    std::string text = sink->sessions() == 0 && !session_may_end ? "bad peer" : StateText();
    for (const std::string& word : told) text += " +" + word;
    for (const SessionResponse& message : sent) {
      switch (message.message_case()) {
        case SessionResponse::kGranted:
          text += " >Granted";
          break;
        case SessionResponse::kWait:
          text += " >Wait";
          break;
        case SessionResponse::kRefused:
          text += message.refused().cause() == worker::v1::CAUSE_TOMBSTONE ? " >Tombstone"
                                                                           : " >Refused";
          break;
        case SessionResponse::kRevoked:
          text += " >Revoked";
          break;
        default:
          break;
      }
    }
    return text;
  }

  SimWorld world;
  SimExecutor executor{world, "sink"};
  std::unique_ptr<kv::KvArena> arena = MakeArena(SmallLayout(), 8);
  Tombstones tombstones{executor, std::chrono::seconds(20)};
  ReceiveTable table{kSink, *arena, executor, std::chrono::seconds(20)};
  SeededRandom random{1};
  std::unique_ptr<TransferSink> sink;
  SinkStream::Listener* listener = nullptr;
  std::vector<SessionResponse> sent;
  std::vector<std::string> told;
  bool session_may_end = false;

 private:
  std::string StateText() const {
    const auto state = sink->state(kAttempt);
    if (state.has_value()) return std::string(ToString(*state));
    return tombstones.Contains(kAttempt) ? "Tombstone" : "Gone";
  }

  void Reserve() {
    SessionRequest message;
    auto& reserve = *message.mutable_reserve();
    proto::Set(kAttempt, *reserve.mutable_attempt());
    reserve.mutable_prompt()->Assign(kPrompt.begin(), kPrompt.end());
    reserve.set_n(1);
    reserve.set_max_tokens(2);
    listener->OnMessage(message);
  }
  void Release() {
    SessionRequest message;
    proto::Set(kAttempt, *message.mutable_release()->mutable_attempt());
    listener->OnMessage(message);
  }

  void Connect() {
    if (connection != nullptr) return;
    uint64_t secret = 0;
    for (const SessionResponse& message : sent) {
      if (message.has_granted()) secret = message.granted().secret();
    }
    connection = std::make_unique<ReceiveConnection>(table, [] {});
    Feed(FrameType::kHello, Encode(HelloFrame{kProtocolVersion, kSource, kSink}));
    Feed(FrameType::kOpen, Encode(OpenFrame{kAttempt, secret}));
  }
  void Feed(FrameType type, const std::string& frame) {
    const auto body =
        std::string_view(frame).substr(kPreludeBytes, frame.size() - kPreludeBytes - kTrailerBytes);
    EXPECT_TRUE(connection->OnFrame(type, body).ok());
  }
  PieceHeader Header(uint32_t layer, uint32_t a) const {
    const uint32_t group = SmallLayout().layers[layer].group;
    const auto bytes = static_cast<uint32_t>(SmallLayout().PieceBytes(layer, a));
    return {kAttempt, kSource, kSink, layer, group, a, 0, 0, 0, bytes};
  }
  void Enter() {
    landing = *connection->BeginPiece(Header(0, 0));
    EXPECT_TRUE(connection->Enter(*landing));
  }
  void LeaveAll() { connection->Leave(*landing); }
  void Damage() {
    Connect();
    Landing piece = *connection->BeginPiece(Header(0, 1));
    connection->EndPiece(piece, ReceiveConnection::Verdict::kDamaged);
  }
  void EndData() {
    Connect();
    connection.reset();
  }
  void Commit(bool whole) {
    Connect();
    for (uint32_t layer = 0; layer < 3 && whole; ++layer) {
      for (uint32_t a = 0; a < 2; ++a) {
        Landing piece = *connection->BeginPiece(Header(layer, a));
        connection->EndPiece(piece, ReceiveConnection::Verdict::kIntact);
      }
    }
    Feed(FrameType::kCommit, Encode(CommitFrame{kAttempt, {TokenChainHash(kPrompt), "state"}}));
  }

  void OnReserve(const AttemptId&, Reservation) override {}
  void OnDropped(const AttemptId&, Cause) override { told.push_back("dropped"); }
  void OnQuiesced(const AttemptId&) override { told.push_back("quiesced"); }
  Cause OnCommit(const AttemptId&, std::string) override {
    told.push_back("commit");
    return worker::v1::CAUSE_UNSPECIFIED;
  }

  std::unique_ptr<ReceiveConnection> connection;
  std::optional<Landing> landing;
};

// Columns Gone, Asked, Waiting, Granted, Quiescing; "-" cannot occur, "host" is a broken invariant.
// A granted attempt of which nothing is in a landing is quiet at once.
using Column = std::array<const char*, 5>;
constexpr std::array<Column, kNumSinkEvents> kTable = {{
    // Reserve
    {"Asked", "bad peer +dropped", "bad peer +dropped", "bad peer +dropped +quiesced",
     "Quiescing >Tombstone"},
    // Release
    {"Tombstone", "Tombstone +dropped", "Tombstone +dropped", "Tombstone +dropped +quiesced",
     "Quiescing"},
    // HostGrant
    {"host", "Granted >Granted", "Granted >Granted", "host", "host"},
    // HostWait
    {"host", "Waiting >Wait", "host", "host", "host"},
    // HostRefuse
    {"host", "Gone >Refused", "Gone >Refused", "host", "host"},
    // HostDrop
    {"Tombstone", "Tombstone >Refused", "Tombstone >Refused", "Tombstone +quiesced >Revoked",
     "Quiescing"},
    // GoodCommit
    {"-", "-", "-", "Gone +commit", "-"},
    // BadCommit
    {"-", "-", "-", "Tombstone +dropped +quiesced", "Quiescing"},
    // TransferFailed
    {"-", "-", "-", "Tombstone +dropped +quiesced >Revoked", "Quiescing"},
    // DataEnded
    {"-", "-", "-", "Tombstone +dropped +quiesced >Revoked", "-"},
    // SessionEnded
    {"Gone", "Tombstone +dropped", "Tombstone +dropped", "Tombstone +dropped +quiesced",
     "Quiescing"},
    // Quiesced
    {"-", "-", "-", "-", "Tombstone +quiesced"},
}};

class SinkTable : public testing::TestWithParam<int> {};

TEST_P(SinkTable, EachStateDoesWhatTheTableSays) {
  const auto event = static_cast<SinkEvent>(GetParam());
  for (int s = 0; s < 5; ++s) {
    const std::string expected = kTable[GetParam()][s];
    if (expected == "-" || expected == "host") continue;
    Rig rig;
    rig.session_may_end = event == SinkEvent::kSessionEnded;
    rig.Bring(static_cast<Start>(s));
    if (event != SinkEvent::kGoodCommit && event != SinkEvent::kBadCommit &&
        event != SinkEvent::kTransferFailed && event != SinkEvent::kDataEnded) {
      rig.sent.clear();  // those need the secret that was sent
    }
    rig.Apply(event);
    std::string result = rig.Result();
    const std::string grant = " >Granted";
    if (expected.find(grant) == std::string::npos && result.find(grant) != std::string::npos) {
      result.erase(result.find(grant), grant.size());
    }
    EXPECT_EQ(result, expected) << ToString(event) << " in state " << s;
  }
}

TEST_P(SinkTable, WhatTheHostMustNotDoIsABrokenInvariant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto event = static_cast<SinkEvent>(GetParam());
  for (int s = 0; s < 5; ++s) {
    if (std::string(kTable[GetParam()][s]) != "host") continue;
    Rig rig;
    rig.Bring(static_cast<Start>(s));
    EXPECT_DEATH(rig.Apply(event), "broken invariant") << ToString(event) << " in state " << s;
  }
}

INSTANTIATE_TEST_SUITE_P(Events, SinkTable, testing::Range(0, kNumSinkEvents),
                         [](const auto& param) {
                           return std::string(ToString(static_cast<SinkEvent>(param.param)));
                         });

TEST(SinkCells, AnotherSourceCannotTouchAnAttempt) {
  Rig rig;
  rig.Bring(Start::kGranted);
  SinkStream::Listener* other = nullptr;
  std::vector<SessionResponse> answers;
  rig.sink->Accept([&](SinkStream::Listener& to) {
    other = &to;
    return std::make_unique<ScriptedStream>(answers);
  });
  SessionRequest message;
  proto::Set({8, 8}, *message.mutable_hello()->mutable_source_epoch());
  proto::Set(kSink, *message.mutable_hello()->mutable_sink_epoch());
  message.mutable_hello()->set_protocol_version(kProtocolVersion);
  other->OnMessage(message);
  message.Clear();
  proto::Set(kAttempt, *message.mutable_release()->mutable_attempt());
  other->OnMessage(message);
  message.Clear();
  proto::Set(kAttempt, *message.mutable_reserve()->mutable_attempt());
  other->OnMessage(message);
  EXPECT_EQ(answers.back().refused().cause(), worker::v1::CAUSE_TOMBSTONE);
  EXPECT_EQ(rig.sink->state(kAttempt), SinkState::kGranted);
}

TEST(SinkCells, ANewSessionOfASourceReplacesTheOldOne) {
  Rig rig;
  rig.Bring(Start::kGranted);
  std::vector<SessionResponse> answers;
  SinkStream::Listener* other = nullptr;
  rig.sink->Accept([&](SinkStream::Listener& to) {
    other = &to;
    return std::make_unique<ScriptedStream>(answers);
  });
  SessionRequest message;
  proto::Set(kSource, *message.mutable_hello()->mutable_source_epoch());
  proto::Set(kSink, *message.mutable_hello()->mutable_sink_epoch());
  message.mutable_hello()->set_protocol_version(kProtocolVersion);
  other->OnMessage(message);
  rig.Run();
  EXPECT_EQ(rig.told, (std::vector<std::string>{"dropped", "quiesced"}));
  EXPECT_EQ(rig.sink->sessions(), 1u);
  EXPECT_TRUE(answers.front().has_hello());
}

TEST(SinkCells, ASessionWithoutHelloIsGivenUpAfterALease) {
  Rig rig;
  std::vector<SessionResponse> answers;
  rig.sink->Accept(
      [&](SinkStream::Listener&) { return std::make_unique<ScriptedStream>(answers); });
  EXPECT_EQ(rig.sink->sessions(), 2u);
  rig.world.RunFor(std::chrono::seconds(11));
  EXPECT_EQ(rig.sink->sessions(), 0u);  // the greeted one was silent as well
}

}  // namespace
}  // namespace baton::kvtransfer
