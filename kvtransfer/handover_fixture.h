// Source and sink cores with in-process data connections on virtual time; for tests.
#ifndef BATON_KVTRANSFER_HANDOVER_FIXTURE_H_
#define BATON_KVTRANSFER_HANDOVER_FIXTURE_H_

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

  // Each end's last frame is for the other, so both nodes must still be there.
  ~HandoverTest() override {
    source.source.reset();
    sink.listener.reset();
  }

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

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_HANDOVER_FIXTURE_H_
