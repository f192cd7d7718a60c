// The table of source_state.h, cell by cell, against a scripted sink and data connection.
#include "kvtransfer/source_state.h"

#include <array>
#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/cells.h"
#include "common/sim_executor.h"
#include "gtest/gtest.h"
#include "kvtransfer/source.h"
#include "kvtransfer/test_rig.h"
#include "kvtransfer/transfer_cells.h"
#include "proto/mapping/ids.h"

namespace baton::kvtransfer {
namespace {

using transfer::v1::SessionRequest;
using transfer::v1::SessionResponse;

constexpr Epoch kSource{1, 1};
constexpr Epoch kSink{2, 2};
const AttemptId kAttempt = TestAttempt(1);

struct ScriptedStream : SourceStream {
  explicit ScriptedStream(std::vector<SessionRequest>& sent_messages) : sent(sent_messages) {}
  void Send(SessionRequest message) override { sent.push_back(std::move(message)); }
  void Close(absl::Status) override {}
  std::vector<SessionRequest>& sent;
};

struct ScriptedConnection : DataConnection {
  ScriptedConnection(std::vector<std::string>& log, const uint64_t& bytes)
      : calls(log), backlog(bytes) {}
  ~ScriptedConnection() override { calls.push_back("end"); }
  void Open(const AttemptId&, uint64_t) override { calls.push_back("open"); }
  void Send(const AttemptId&, const BlockRun&) override { calls.push_back("send"); }
  void Commit(const AttemptId&, CommitMessage) override { calls.push_back("commit"); }
  void Close(const AttemptId&) override { calls.push_back("close"); }
  uint64_t Backlog(const AttemptId&) const override { return backlog; }
  std::vector<std::string>& calls;
  const uint64_t& backlog;
};

// One attempt, brought into a state by what would bring it there.
class Rig : public TransferSource::Host, public SinkDialer, public Transport {
 public:
  explicit Rig(CellCounts* counts = nullptr) {
    TransferSource::Options options;
    options.epoch = kSource;
    options.layout = SmallLayout();
    if (counts != nullptr) {
      options.on_event = [counts](SourceState state, SourceEvent event) {
        counts->Add("source", ToString(state), ToString(event));
      };
    }
    source = std::make_unique<TransferSource>(options, executor, *this,
                                              std::vector<Transport*>{this}, *this, nullptr);
  }

  // `event` decides between ways that differ.
  void Bring(SourceState state, SourceEvent event = SourceEvent::kRelease) {
    ReserveRequest request;
    request.prompt = {1, 2, 3};
    request.max_tokens = 4;
    source->Reserve(kAttempt, {"sink", kSink}, request);
    if (state == SourceState::kConnecting) return;
    const bool ending = state == SourceState::kEnding;
    if (ending && event == SourceEvent::kSessionOpen) return Apply(SourceEvent::kRelease);
    Apply(SourceEvent::kSessionOpen);
    if (state == SourceState::kReserving) return;
    if (state == SourceState::kWaiting) return Apply(SourceEvent::kWaitMessage);
    if (ending && event == SourceEvent::kDataConnected) return Apply(SourceEvent::kRelease);
    Apply(SourceEvent::kGrantedMessage);
    if (state == SourceState::kOpening) return;
    Apply(SourceEvent::kDataConnected);
    if (state == SourceState::kGranted) return;
    Apply(state == SourceState::kCommitting ? SourceEvent::kCommit : SourceEvent::kRelease);
  }

  void Apply(SourceEvent event) {
    switch (event) {
      case SourceEvent::kSessionOpen:
        return SayHello();
      case SourceEvent::kGrantedMessage:
      case SourceEvent::kWaitMessage:
      case SourceEvent::kRefusedMessage:
      case SourceEvent::kRevokedMessage:
        return Say(event);
      case SourceEvent::kDataConnected:
        return data_listener->OnConnected();
      case SourceEvent::kCommitted:
        return data_listener->OnCommitReply(kAttempt, {});
      case SourceEvent::kCommitRefused:
        return data_listener->OnCommitReply(kAttempt, worker::v1::CAUSE_MISSING_PIECE);
      case SourceEvent::kShip:
        return source->Ship(kAttempt, {0, 0, {3}});
      case SourceEvent::kCommit:
        return source->Commit(kAttempt, {});
      case SourceEvent::kRelease:
        return source->Release(kAttempt);
      case SourceEvent::kDataEnded:
        return data_listener->OnEnded(absl::UnavailableError(""));
      case SourceEvent::kSessionEnded:
        return listener->OnClosed(absl::UnavailableError(""));
      case SourceEvent::kTransferClosed:
        return data_listener->OnTransferClosed(kAttempt);
    }
  }

  // The state, or the outcome after what was posted has run.
  std::string Result() {
    world.RunFor(std::chrono::milliseconds(1));
    if (ends == 0) return std::string(ToString(*source->state(kAttempt)));
    EXPECT_EQ(ends, 1);
    EXPECT_FALSE(source->state(kAttempt).has_value());
    if (end.cause == worker::v1::CAUSE_MALFORMED) return "bad peer";
    constexpr std::array<const char*, 6> kNames = {"Committed", "NotGranted", "Refused",
                                                   "Revoked",   "Released",   "PeerLost"};
    return kNames[static_cast<size_t>(end.outcome)];
  }

  // The sink's session is alive.
  void RunAlive(std::chrono::seconds time) {
    for (; time > std::chrono::seconds(0); --time) {
      SessionResponse message;
      message.mutable_heartbeat();
      listener->OnMessage(message);
      world.RunFor(std::chrono::seconds(1));
    }
  }

  int Sent(SessionRequest::MessageCase kind) const {
    int count = 0;
    for (const SessionRequest& message : sent) count += message.message_case() == kind ? 1 : 0;
    return count;
  }

  SimWorld world;
  SimExecutor executor{world, "source"};
  std::vector<SessionRequest> sent;
  std::vector<std::string> calls;
  uint64_t backlog = 0;  // of the data connection
  SourceStream::Listener* listener = nullptr;
  DataConnection::Listener* data_listener = nullptr;
  int ends = 0;
  TransferEnd end;
  std::unique_ptr<TransferSource> source;

 private:
  void SayHello() {
    SessionResponse message;
    proto::Set(kSink, *message.mutable_hello()->mutable_sink_epoch());
    message.mutable_hello()->set_protocol_version(kProtocolVersion);
    message.mutable_hello()->set_lease_ms(10000);
    message.mutable_hello()->add_data_addresses("scripted:x");
    listener->OnMessage(message);
  }
  void Say(SourceEvent event) {
    SessionResponse message;
    if (event == SourceEvent::kGrantedMessage) {
      proto::Set(kAttempt, *message.mutable_granted()->mutable_attempt());
      message.mutable_granted()->add_first_needed_block(0);
      message.mutable_granted()->add_first_needed_block(0);
    } else if (event == SourceEvent::kWaitMessage) {
      proto::Set(kAttempt, *message.mutable_wait()->mutable_attempt());
    } else if (event == SourceEvent::kRefusedMessage) {
      proto::Set(kAttempt, *message.mutable_refused()->mutable_attempt());
      message.mutable_refused()->set_cause(worker::v1::CAUSE_NO_ROOM);
    } else {
      proto::Set(kAttempt, *message.mutable_revoked()->mutable_attempt());
      message.mutable_revoked()->set_cause(worker::v1::CAUSE_CANCELLED);
    }
    listener->OnMessage(message);
  }

  void OnGranted(const AttemptId&, const std::vector<uint32_t>&) override {}
  void OnWaiting(const AttemptId&) override {}
  void OnEnded(const AttemptId&, const TransferEnd& the_end) override {
    ++ends;
    end = the_end;
  }
  std::unique_ptr<SourceStream> Dial(const std::string&, SourceStream::Listener& to) override {
    listener = &to;
    return std::make_unique<ScriptedStream>(sent);
  }
  std::string_view scheme() const override { return "scripted"; }
  std::unique_ptr<DataConnection> Connect(const ConnectRequest&,
                                          DataConnection::Listener& to) override {
    data_listener = &to;
    return std::make_unique<ScriptedConnection>(calls, backlog);
  }
  absl::StatusOr<std::unique_ptr<DataListener>> Listen(ReceiveTable&) override {
    return absl::UnimplementedError("");
  }
};

// In the order of the enums; "-" cannot occur, "host" is a broken invariant of the caller.
using Column = std::array<const char*, kNumSourceStates>;
constexpr std::array<Column, kNumSourceEvents> kTable = {{
    // SessionOpen
    {"Reserving", "-", "-", "-", "-", "-", "Released"},
    // Granted
    {"-", "Opening", "Opening", "bad peer", "bad peer", "bad peer", "Ending"},
    // Wait
    {"-", "Waiting", "bad peer", "bad peer", "bad peer", "bad peer", "Ending"},
    // Refused
    {"-", "NotGranted", "NotGranted", "bad peer", "bad peer", "bad peer", "Ending"},
    // Revoked
    {"-", "bad peer", "bad peer", "Revoked", "Ending", "Ending", "Ending"},
    // DataConnected
    {"-", "Reserving", "Waiting", "Granted", "-", "-", "Released"},
    // Committed
    {"-", "-", "-", "-", "bad peer", "Ending", "Ending"},
    // CommitRefused
    {"-", "-", "-", "-", "bad peer", "Ending", "Ending"},
    // Ship
    {"host", "host", "host", "host", "Granted", "host", "Ending"},
    // Commit
    {"host", "host", "host", "host", "Committing", "host", "Ending"},
    // Release
    {"Released", "Released", "Released", "Released", "Ending", "Ending", "Ending"},
    // DataEnded
    {"-", "Reserving", "Waiting", "PeerLost", "PeerLost", "PeerLost", "Released"},
    // SessionEnded
    {"PeerLost", "PeerLost", "PeerLost", "PeerLost", "PeerLost", "PeerLost", "Released"},
    // TransferClosed
    {"-", "-", "-", "-", "-", "-", "Released"},
}};

std::string Name(SourceState state, SourceEvent event) {
  return std::string(ToString(event)) + " in " + std::string(ToString(state));
}

void Drive(SourceState state, SourceEvent event, const std::string& expected, CellCounts& counts) {
  SCOPED_TRACE(Name(state, event));
  if (expected == "-") return;
  if (expected == "host") {
    Rig rig;
    rig.Bring(state);
    EXPECT_DEATH(rig.Apply(event), "broken invariant");
    return counts.Add("source", ToString(state), ToString(event));  // in a process of its own
  }
  Rig rig(&counts);
  rig.Bring(state, event);
  ASSERT_EQ(rig.source->state(kAttempt), state);
  const uint64_t before = counts.Of("source", ToString(state), ToString(event));
  rig.Apply(event);
  EXPECT_EQ(rig.Result(), expected);
  EXPECT_GT(counts.Of("source", ToString(state), ToString(event)), before);
}

TEST(SourceCells, EachCellDoesWhatTheTableSays) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  CellCounts counts;
  for (int e = 0; e < kNumSourceEvents; ++e) {
    for (int s = 0; s < kNumSourceStates; ++s) {
      Drive(static_cast<SourceState>(s), static_cast<SourceEvent>(e), kTable[e][s], counts);
    }
  }
  EXPECT_EQ(counts.Problems({SourceCells()}, "su"), "");
}

TEST(SourceCells, ASinkThatSpeaksBeforeItsHelloIsABadPeer) {
  for (const SourceEvent event : {SourceEvent::kGrantedMessage, SourceEvent::kWaitMessage,
                                  SourceEvent::kRefusedMessage, SourceEvent::kRevokedMessage}) {
    Rig rig;
    rig.Bring(SourceState::kConnecting);
    rig.Apply(event);
    EXPECT_EQ(rig.Result(), "bad peer") << ToString(event);
  }
}

TEST(SourceCells, TheDrawingAndTheMarksAgree) {
  std::ifstream header("kvtransfer/source_state.h");
  std::ostringstream text;
  text << header.rdbuf();
  EXPECT_EQ(DrawingProblems(SourceCells(), text.str()), "");
}

TEST(SourceCells, EverythingIsIgnoredForAnAttemptThatIsGone) {
  for (int e = 0; e < kNumSourceEvents; ++e) {
    const auto event = static_cast<SourceEvent>(e);
    if (event == SourceEvent::kSessionOpen || event == SourceEvent::kDataEnded ||
        event == SourceEvent::kSessionEnded || event == SourceEvent::kDataConnected) {
      continue;  // not about an attempt
    }
    Rig rig;
    rig.Bring(SourceState::kEnding);
    rig.Apply(SourceEvent::kTransferClosed);
    ASSERT_EQ(rig.Result(), "Released");
    rig.Apply(event);
    EXPECT_EQ(rig.Result(), "Released") << ToString(event);
  }
}

TEST(SourceCells, ReleaseIsSentExactlyWhenTheSinkHeardOfTheAttempt) {
  for (int s = 0; s < kNumSourceStates; ++s) {
    Rig rig;
    rig.Bring(static_cast<SourceState>(s));
    rig.Apply(SourceEvent::kRelease);
    EXPECT_EQ(rig.Sent(SessionRequest::kRelease), s == 0 ? 0 : 1) << s;
  }
}

TEST(SourceCells, TheOutcomeOfAnEndingAttemptWaitsForTheTransport) {
  Rig rig;
  rig.Bring(SourceState::kCommitting);
  rig.Apply(SourceEvent::kCommitted);
  EXPECT_EQ(rig.Result(), "Ending");
  EXPECT_EQ(rig.calls.back(), "close");
  rig.Apply(SourceEvent::kTransferClosed);
  EXPECT_EQ(rig.Result(), "Committed");
}

TEST(SourceCells, AGrantThatDoesNotFitThePromptIsABadPeer) {
  Rig rig;
  rig.Bring(SourceState::kReserving);
  SessionResponse message;
  proto::Set(kAttempt, *message.mutable_granted()->mutable_attempt());
  message.mutable_granted()->add_first_needed_block(0);
  message.mutable_granted()->add_first_needed_block(2);  // the prompt has one block
  rig.listener->OnMessage(message);
  EXPECT_EQ(rig.Result(), "bad peer");
}

// One group of the layout has a window of 64.
TEST(SourceCells, AGrantThatAsksForWhatSlidOutOfAWindowIsABadPeer) {
  for (const uint32_t first : {1u, 2u}) {
    Rig rig;
    ReserveRequest request;
    request.prompt.assign(64 + 31, 1);  // the token behind it sees from position 32 on
    request.max_tokens = 4;
    rig.source->Reserve(kAttempt, {"sink", kSink}, request);
    rig.Apply(SourceEvent::kSessionOpen);
    SessionResponse message;
    proto::Set(kAttempt, *message.mutable_granted()->mutable_attempt());
    message.mutable_granted()->add_first_needed_block(0);
    message.mutable_granted()->add_first_needed_block(first);
    rig.listener->OnMessage(message);
    EXPECT_EQ(rig.Result(), first == 1 ? "bad peer" : "Opening");
  }
}

TEST(SourceCells, ADataConnectionThatTakesNothingAfterCommitIsLostAfterALease) {
  Rig rig;
  rig.Bring(SourceState::kGranted);
  rig.backlog = 9;
  rig.Apply(SourceEvent::kCommit);
  rig.RunAlive(std::chrono::seconds(8));
  rig.backlog = 5;  // it is only slow
  rig.RunAlive(std::chrono::seconds(11));
  EXPECT_EQ(rig.Result(), "Committing");
  rig.RunAlive(std::chrono::seconds(2));
  EXPECT_EQ(rig.Result(), "PeerLost");
  ASSERT_EQ(rig.Sent(SessionRequest::kRelease), 1);
  for (const SessionRequest& message : rig.sent) {
    if (message.has_release()) {
      EXPECT_EQ(message.release().cause(), worker::v1::CAUSE_PEER_LOST);
    }
  }
  EXPECT_EQ(rig.calls.back(), "end");
}

TEST(SourceCells, ASessionThatDoesNotOpenIsGivenUpAfterALease) {
  Rig rig;
  rig.Bring(SourceState::kConnecting);
  rig.world.RunFor(std::chrono::seconds(9));
  EXPECT_EQ(rig.Result(), "Connecting");
  rig.world.RunFor(std::chrono::seconds(2));
  EXPECT_EQ(rig.Result(), "PeerLost");
  EXPECT_EQ(rig.end.cause, worker::v1::CAUSE_LEASE_EXPIRED);
}

}  // namespace
}  // namespace baton::kvtransfer
