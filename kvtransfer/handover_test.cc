// Source and sink cores with in-process data connections on virtual time.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/hash.h"
#include "common/metrics.h"
#include "common/random.h"
#include "common/sim_executor.h"
#include "gtest/gtest.h"
#include "kvtransfer/in_process_transport.h"
#include "kvtransfer/sink.h"
#include "kvtransfer/source.h"
#include "kvtransfer/test_rig.h"
#include "kvtransfer/transfer_metrics.h"

namespace baton::kvtransfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
namespace wire = worker::v1;

constexpr Epoch kSourceEpoch{1, 1};
constexpr Epoch kSinkEpoch{2, 2};
constexpr uint32_t kBlocks = 64;

struct SourceNode : TransferSource::Host {
  SourceNode(SimWorld& world, InProcessNetwork& network, SinkDialer& dialer)
      : executor(world, "source"),
        arena(MakeArena(SmallLayout(), kBlocks)),
        metrics(registry),
        transport(network, "source", executor, arena.get()) {
    FillArena(*arena, 7);
    TransferSource::Options options;
    options.epoch = kSourceEpoch;
    options.layout = SmallLayout();
    options.numerics_id = {5, 5};
    source = std::make_unique<TransferSource>(options, executor, dialer,
                                              std::vector<Transport*>{&transport}, *this, &metrics);
  }

  void OnGranted(const AttemptId& attempt, const std::vector<uint32_t>& first) override {
    granted[attempt] = first;
    if (on_granted) on_granted(attempt);
  }
  void OnWaiting(const AttemptId& attempt) override { ++waiting[attempt]; }
  void OnEnded(const AttemptId& attempt, const TransferEnd& end) override {
    EXPECT_EQ(ended.count(attempt), 0u) << "two ends of " << attempt.ToString();
    ended[attempt] = end;
  }

  SimExecutor executor;
  std::unique_ptr<kv::KvArena> arena;
  MetricsRegistry registry;
  TransferMetrics metrics;
  InProcessTransport transport;
  std::unique_ptr<TransferSource> source;
  std::map<AttemptId, std::vector<uint32_t>> granted;
  std::map<AttemptId, int> waiting;
  std::map<AttemptId, TransferEnd> ended;
  std::function<void(const AttemptId&)> on_granted;
};

struct SinkNode : TransferSink::Host {
  SinkNode(SimWorld& world, InProcessNetwork& network)
      : executor(world, "sink", seconds(1000)),
        arena(MakeArena(SmallLayout(), kBlocks)),
        metrics(registry),
        tombstones(executor, seconds(20)),
        table(kSinkEpoch, *arena, executor, seconds(20)),
        transport(network, "sink", executor, nullptr) {
    listener = *transport.Listen(table);
    TransferSink::Options options;
    options.epoch = kSinkEpoch;
    options.numerics_id = {5, 5};
    options.vocab_size = 1000;
    options.context_length = 512;
    options.num_groups = 2;
    options.data_addresses = {"tcp:127.0.0.1:1", listener->address()};
    sink = std::make_unique<TransferSink>(options, executor, table, tombstones, random, *this,
                                          &metrics);
  }

  void OnReserve(const AttemptId& attempt, Reservation reservation) override {
    reserved[attempt] = reservation;
    if (wait) return sink->Wait(attempt);
    if (refuse) return sink->Refuse(attempt, *refuse);
    GrantBlocks(attempt);
  }
  // Two groups of as many blocks as the prompt and two tokens need, at different places.
  void GrantBlocks(const AttemptId& attempt) {
    const auto needed = static_cast<uint32_t>((reserved[attempt].prompt.size() + 17) / 16);
    std::vector<TransferSink::GroupGrant> groups(2);
    for (uint32_t i = 0; i < needed; ++i) {
      groups[0].blocks.push_back(next_block++ % kBlocks);
      groups[1].blocks.push_back(kBlocks - 1 - groups[0].blocks.back());
    }
    for (auto& group : groups) group.first_needed = first_needed;
    blocks[attempt] = groups;
    sink->Grant(attempt, groups);
  }
  void OnDropped(const AttemptId& attempt, Cause cause) override { dropped[attempt] = cause; }
  void OnQuiesced(const AttemptId& attempt) override { ++quiesced[attempt]; }
  Cause OnCommit(const AttemptId& attempt, std::string state) override {
    committed[attempt] = std::move(state);
    return commit_answer;
  }
  void OnFirstPiece(const AttemptId& attempt) override { ++first_piece[attempt]; }

  SimExecutor executor;
  std::unique_ptr<kv::KvArena> arena;
  MetricsRegistry registry;
  TransferMetrics metrics;
  Tombstones tombstones;
  ReceiveTable table;
  InProcessTransport transport;
  std::unique_ptr<DataListener> listener;
  SeededRandom random{3};
  std::unique_ptr<TransferSink> sink;
  bool wait = false;
  std::optional<Cause> refuse;
  Cause commit_answer = wire::CAUSE_UNSPECIFIED;
  uint32_t first_needed = 0;
  uint32_t next_block = 5;
  std::map<AttemptId, Reservation> reserved;
  std::map<AttemptId, std::vector<TransferSink::GroupGrant>> blocks;
  std::map<AttemptId, Cause> dropped;
  std::map<AttemptId, int> quiesced;
  std::map<AttemptId, std::string> committed;
  std::map<AttemptId, int> first_piece;
};

class HandoverTest : public testing::Test, public SinkDialer {
 protected:
  using SourcePipe = PipeStream<transfer::v1::SessionRequest, transfer::v1::SessionResponse>;
  using SinkPipe = PipeStream<transfer::v1::SessionResponse, transfer::v1::SessionRequest>;

  std::unique_ptr<SourceStream> Dial(const std::string&,
                                     SourceStream::Listener& listener) override {
    ++dials;
    auto pipe = std::make_unique<SourcePipe>(source.executor, listener);
    sink.sink->Accept([&](SinkStream::Listener& sink_listener) {
      auto other = std::make_unique<SinkPipe>(sink.executor, sink_listener);
      SourcePipe::Join(*pipe, *other);
      return other;
    });
    return pipe;
  }

  static std::vector<TokenId> Prompt(size_t n) {
    std::vector<TokenId> prompt;
    for (size_t i = 0; i < n; ++i) prompt.push_back(static_cast<TokenId>((i * 7) % 1000));
    return prompt;
  }

  void Reserve(const AttemptId& attempt, size_t tokens, Epoch epoch = kSinkEpoch) {
    ReserveRequest request;
    request.prompt = Prompt(tokens);
    request.max_tokens = 2;
    request.age = milliseconds(5);
    prompts[attempt] = request.prompt;
    source.source->Reserve(attempt, {"sink", epoch}, request);
  }

  // Block i of the prompt lies at (i + attempt number) in group 0 and one further in group 1.
  static kv::BlockId SourceBlock(const AttemptId& attempt, uint32_t ordinal, uint32_t group) {
    return static_cast<kv::BlockId>((ordinal + attempt.request + group) % kBlocks);
  }
  void ShipAll(const AttemptId& attempt) {
    const auto blocks = static_cast<uint32_t>((prompts[attempt].size() + 15) / 16);
    for (uint32_t layer = 0; layer < 3; ++layer) {
      BlockRun run{layer, 0, {}};
      const uint32_t group = SmallLayout().layers[layer].group;
      for (uint32_t i = 0; i < blocks; ++i) run.blocks.push_back(SourceBlock(attempt, i, group));
      source.source->Ship(attempt, run);
    }
  }
  void Commit(const AttemptId& attempt) {
    source.source->Commit(attempt, {TokenChainHash(prompts[attempt]), "state"});
  }
  void ExpectBlocksArrived(const AttemptId& attempt) {
    const auto blocks = static_cast<uint32_t>((prompts[attempt].size() + 15) / 16);
    for (uint32_t group = 0; group < 2; ++group) {
      for (uint32_t i = sink.first_needed; i < blocks; ++i) {
        EXPECT_TRUE(SameBlock(*source.arena, SourceBlock(attempt, i, group), *sink.arena,
                              sink.blocks[attempt][group].blocks[i], group))
            << "group " << group << " block " << i;
      }
    }
  }
  void Run(Duration duration = milliseconds(50)) { world.RunFor(duration); }
  void ExpectIdle() {
    EXPECT_EQ(source.source->live(), 0u);
    EXPECT_EQ(sink.sink->live(), 0u);
    EXPECT_EQ(sink.table.live(), 0u);
    EXPECT_EQ(source.metrics.in_flight.Value(), 0);
    EXPECT_EQ(sink.metrics.in_flight.Value(), 0);
  }
  double Failures(MetricFamily<Counter>& family, const std::string& cause) {
    return family.With({cause}).Value();
  }

  SimWorld world;
  // May change or hold back what crosses; nothing: carry it at once.
  std::function<bool(const InProcessNetwork::Wire&, std::string&)> meddle;
  InProcessNetwork network{[this](const InProcessNetwork::Wire& on, Executor& to,
                                  std::string& bytes, std::function<void()> deliver) {
    if (!meddle || meddle(on, bytes)) to.Post(std::move(deliver));
  }};
  int dials = 0;
  SinkNode sink{world, network};
  SourceNode source{world, network, *this};
  std::map<AttemptId, std::vector<TokenId>> prompts;
};

TEST_F(HandoverTest, BlocksAndStateCrossAndBothSidesForget) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 70);
  Run();
  ASSERT_EQ(source.granted.count(a), 1u);
  EXPECT_EQ(sink.reserved[a].prompt, prompts[a]);
  EXPECT_EQ(sink.reserved[a].age, milliseconds(5));
  ShipAll(a);
  Run();
  EXPECT_EQ(sink.first_piece[a], 1);
  EXPECT_EQ(sink.committed.count(a), 0u);
  Commit(a);
  Run();
  ASSERT_EQ(source.ended.count(a), 1u);
  EXPECT_EQ(source.ended[a].outcome, Outcome::kCommitted);
  EXPECT_EQ(sink.committed[a], "state");
  ExpectBlocksArrived(a);
  EXPECT_EQ(source.metrics.handoff_seconds.Count(), 1u);
  EXPECT_EQ(source.metrics.handoff_bytes.Value(), static_cast<double>(source.ended[a].bytes));
  EXPECT_EQ(sink.table.landed_bytes(), source.ended[a].bytes);
  EXPECT_TRUE(sink.quiesced.empty() && sink.dropped.empty());
  ExpectIdle();
}

TEST_F(HandoverTest, ManyTransfersInterleaveOnOneSession) {
  source.on_granted = [this](const AttemptId& attempt) {
    ShipAll(attempt);
    Commit(attempt);
  };
  for (uint64_t i = 1; i <= 9; ++i) Reserve(TestAttempt(i), i == 3 ? 1 : 16 * (i % 4) + 15 + i % 3);
  Run();
  EXPECT_EQ(dials, 1);
  for (uint64_t i = 1; i <= 9; ++i) {
    EXPECT_EQ(source.ended[TestAttempt(i)].outcome, Outcome::kCommitted) << i;
  }
  ExpectBlocksArrived(TestAttempt(9));
  ExpectIdle();
}

TEST_F(HandoverTest, BlocksTheSinkHasAreNotSentAndAFullHitStillCommits) {
  sink.first_needed = 2;
  const AttemptId partial = TestAttempt(1);
  const AttemptId full = TestAttempt(2);
  Reserve(partial, 50);
  Reserve(full, 32);
  Run();
  EXPECT_EQ(source.granted[partial], (std::vector<uint32_t>{2, 2}));
  for (const AttemptId& attempt : {partial, full}) {
    ShipAll(attempt);
    Commit(attempt);
  }
  Run();
  EXPECT_EQ(source.ended[partial].outcome, Outcome::kCommitted);
  EXPECT_EQ(source.ended[full].outcome, Outcome::kCommitted);
  EXPECT_EQ(source.ended[full].bytes, 0u);
  ExpectBlocksArrived(partial);
  ExpectIdle();
}

TEST_F(HandoverTest, AWaitingReservationIsGrantedLaterOrReleased) {
  sink.wait = true;
  const AttemptId a = TestAttempt(1);
  const AttemptId b = TestAttempt(2);
  Reserve(a, 20);
  Reserve(b, 20);
  Run();
  EXPECT_EQ(source.waiting[a], 1);
  EXPECT_EQ(source.granted.count(a), 0u);
  source.source->Release(b);
  sink.GrantBlocks(a);
  Run();
  EXPECT_EQ(source.granted.count(a), 1u);
  EXPECT_EQ(source.ended[b].outcome, Outcome::kReleased);
  EXPECT_EQ(sink.dropped[b], wire::CAUSE_RELEASED);
  EXPECT_TRUE(sink.tombstones.Contains(b));
  source.source->Release(a);
  Run();
  EXPECT_EQ(sink.quiesced[a], 1);
  ExpectIdle();
}

TEST_F(HandoverTest, ARefusalNamesItsCauseAndLeavesNothing) {
  sink.refuse = wire::CAUSE_NO_SESSION;
  Reserve(TestAttempt(1), 20);
  Run();
  EXPECT_EQ(source.ended[TestAttempt(1)].outcome, Outcome::kNotGranted);
  EXPECT_EQ(source.ended[TestAttempt(1)].cause, wire::CAUSE_NO_SESSION);
  ExpectIdle();
}

TEST_F(HandoverTest, AReservationOutOfRangeIsRefusedAsMalformed) {
  ReserveRequest request;
  request.prompt = {1000};  // the vocabulary ends at 999
  request.max_tokens = 1;
  source.source->Reserve(TestAttempt(1), {"sink", kSinkEpoch}, request);
  request.prompt = Prompt(512);  // the context
  source.source->Reserve(TestAttempt(2), {"sink", kSinkEpoch}, request);
  request.prompt = Prompt(5);
  request.max_tokens = 0;
  source.source->Reserve(TestAttempt(3), {"sink", kSinkEpoch}, request);
  Run();
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(source.ended[TestAttempt(i)].cause, wire::CAUSE_MALFORMED) << i;
  }
  EXPECT_TRUE(sink.reserved.empty());
  ExpectIdle();
}

TEST_F(HandoverTest, AnotherProcessAtTheSinksAddressIsStale) {
  Reserve(TestAttempt(1), 20, Epoch{9, 9});
  Run();
  EXPECT_EQ(source.ended[TestAttempt(1)].outcome, Outcome::kPeerLost);
  EXPECT_EQ(source.ended[TestAttempt(1)].cause, wire::CAUSE_STALE_EPOCH);
  EXPECT_EQ(sink.sink->sessions(), 0u);
  ExpectIdle();
}

TEST_F(HandoverTest, ACancelAtTheSinkRevokesAndItsBlocksAreQuietBeforeTheyAreFreed) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 70);
  Run();
  ShipAll(a);
  sink.sink->Drop(a, wire::CAUSE_CANCELLED);
  Run();
  EXPECT_EQ(source.ended[a].outcome, Outcome::kRevoked);
  EXPECT_EQ(source.ended[a].cause, wire::CAUSE_CANCELLED);
  EXPECT_EQ(sink.quiesced[a], 1);
  EXPECT_EQ(sink.dropped.count(a), 0u);
  EXPECT_EQ(Failures(sink.metrics.failures, "cancelled"), 1);
  EXPECT_EQ(Failures(source.metrics.failures, "cancelled"), 1);
  // The id stays refused, and the session goes on.
  Reserve(TestAttempt(2), 20);
  source.ended.clear();
  Reserve(a, 70);
  Run();
  EXPECT_EQ(source.ended[a].cause, wire::CAUSE_TOMBSTONE);
  EXPECT_EQ(source.granted.count(TestAttempt(2)), 1u);
}

TEST_F(HandoverTest, ACancelForAnAttemptNeverSeenRefusesItsReserve) {
  sink.sink->Drop(TestAttempt(1), wire::CAUSE_CANCELLED);
  Reserve(TestAttempt(1), 20);
  Run();
  EXPECT_EQ(source.ended[TestAttempt(1)].outcome, Outcome::kNotGranted);
  EXPECT_EQ(source.ended[TestAttempt(1)].cause, wire::CAUSE_TOMBSTONE);
  Run(seconds(21));
  EXPECT_EQ(sink.tombstones.size(), 0u);
  ExpectIdle();
}

TEST_F(HandoverTest, AReleaseBeforeCommitFreesBothSides) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 70);
  Run();
  ShipAll(a);
  source.source->Release(a);
  Run();
  EXPECT_EQ(source.ended[a].outcome, Outcome::kReleased);
  EXPECT_EQ(sink.dropped[a], wire::CAUSE_RELEASED);
  EXPECT_EQ(sink.quiesced[a], 1);
  ExpectIdle();
}

TEST_F(HandoverTest, AReleaseAfterCommitIsIgnoredAndMakesNoTombstone) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 20);
  Run();
  ShipAll(a);
  Commit(a);
  while (sink.committed.empty()) ASSERT_TRUE(world.RunOne());
  source.source->Release(a);  // the reply is still on its way
  Run();
  EXPECT_EQ(source.ended[a].outcome, Outcome::kReleased);
  EXPECT_TRUE(sink.dropped.empty());
  EXPECT_FALSE(sink.tombstones.Contains(a));
  ExpectIdle();
}

TEST_F(HandoverTest, ADamagedPieceRefusesOnlyItsTransfer) {
  bool damaged = false;
  meddle = [&](const InProcessNetwork::Wire& on, std::string& bytes) {
    if (on.to == "sink" && bytes.size() > 500 && !damaged) {
      damaged = true;
      bytes[300] = static_cast<char>(bytes[300] ^ 1);
    }
    return true;
  };
  source.on_granted = [this](const AttemptId& attempt) {
    ShipAll(attempt);
    Commit(attempt);
  };
  Reserve(TestAttempt(1), 70);
  Reserve(TestAttempt(2), 70);
  Run();
  EXPECT_TRUE(damaged);
  EXPECT_EQ(source.ended[TestAttempt(1)].cause, wire::CAUSE_CHECKSUM_MISMATCH);
  EXPECT_EQ(sink.dropped[TestAttempt(1)], wire::CAUSE_CHECKSUM_MISMATCH);
  EXPECT_EQ(sink.quiesced[TestAttempt(1)], 1);
  EXPECT_EQ(source.ended[TestAttempt(2)].outcome, Outcome::kCommitted);
  EXPECT_EQ(Failures(sink.metrics.failures, "checksum_mismatch"), 1);
  ExpectIdle();
}

TEST_F(HandoverTest, ACommitWithoutAllPiecesIsRefused) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 40);
  Run();
  source.source->Ship(a, {0, 0, {1, 2, 3}});
  Commit(a);
  Run();
  EXPECT_EQ(source.ended[a].outcome, Outcome::kRefused);
  EXPECT_EQ(source.ended[a].cause, wire::CAUSE_MISSING_PIECE);
  EXPECT_EQ(sink.dropped[a], wire::CAUSE_MISSING_PIECE);
  EXPECT_EQ(sink.quiesced[a], 1);
  EXPECT_TRUE(sink.committed.empty());
  ExpectIdle();
}

TEST_F(HandoverTest, ACommitOfAnotherPromptIsRefused) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 40);
  Run();
  ShipAll(a);
  source.source->Commit(a, {TokenChainHash(Prompt(39)), "state"});
  Run();
  EXPECT_EQ(source.ended[a].outcome, Outcome::kRefused);
  EXPECT_TRUE(sink.committed.empty());
  ExpectIdle();
}

TEST_F(HandoverTest, AHostThatRefusesTheStateGetsItsBlocksBackQuiet) {
  sink.commit_answer = wire::CAUSE_INTERNAL;
  const AttemptId a = TestAttempt(1);
  Reserve(a, 40);
  Run();
  ShipAll(a);
  Commit(a);
  Run();
  EXPECT_EQ(source.ended[a].outcome, Outcome::kRefused);
  EXPECT_EQ(source.ended[a].cause, wire::CAUSE_INTERNAL);
  EXPECT_EQ(sink.quiesced[a], 1);
  ExpectIdle();
}

TEST_F(HandoverTest, ASourceThatDiesMidTransferFreesTheSinkAfterItsLease) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 70);
  Run();
  ShipAll(a);
  source.executor.Kill();
  Run(seconds(9));
  EXPECT_TRUE(sink.dropped.empty());
  Run(seconds(2));
  EXPECT_EQ(sink.dropped[a], wire::CAUSE_LEASE_EXPIRED);
  EXPECT_EQ(sink.quiesced[a], 1);
  EXPECT_EQ(sink.metrics.leases_expired.Value(), 1);
  EXPECT_EQ(sink.sink->sessions(), 0u);
  EXPECT_EQ(sink.table.live(), 0u);
}

TEST_F(HandoverTest, ASilentSinkEndsTheSourcesAttempts) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 70);
  Run();
  ShipAll(a);
  Commit(a);
  sink.executor.Kill();
  Run(seconds(11));
  EXPECT_EQ(source.ended[a].outcome, Outcome::kPeerLost);
  EXPECT_EQ(source.ended[a].cause, wire::CAUSE_LEASE_EXPIRED);
  EXPECT_EQ(source.source->live(), 0u);
}

TEST_F(HandoverTest, ALongIdleSessionStaysOpen) {
  Reserve(TestAttempt(1), 20);
  Run(seconds(100));
  EXPECT_EQ(sink.sink->sessions(), 1u);
  EXPECT_EQ(source.source->state(TestAttempt(1)), SourceState::kGranted);
}

TEST_F(HandoverTest, ALostDataConnectionEndsItsTransfersAndTheNextGrantConnectsAgain) {
  const AttemptId a = TestAttempt(1);
  Reserve(a, 70);
  Run();
  meddle = [](const InProcessNetwork::Wire&, std::string& bytes) {
    if (bytes.size() > 500) bytes[0] = 'x';  // no frame at all
    return true;
  };
  ShipAll(a);
  Run();
  EXPECT_EQ(
      source.ended[a].outcome == Outcome::kPeerLost || source.ended[a].outcome == Outcome::kRevoked,
      true);
  EXPECT_EQ(sink.dropped[a], wire::CAUSE_MALFORMED);
  meddle = nullptr;
  const AttemptId b = TestAttempt(2);
  Reserve(b, 70);
  Run();
  ShipAll(b);
  Commit(b);
  Run();
  EXPECT_EQ(source.ended[b].outcome, Outcome::kCommitted);
  EXPECT_EQ(dials, 1);
  ExpectIdle();
}

TEST_F(HandoverTest, DestroyingTheSinkEndsTheSourcesAttempts) {
  Reserve(TestAttempt(1), 20);
  Run();
  sink.listener.reset();
  sink.sink.reset();
  Run();
  EXPECT_EQ(source.ended[TestAttempt(1)].outcome, Outcome::kPeerLost);
}

}  // namespace
}  // namespace baton::kvtransfer
