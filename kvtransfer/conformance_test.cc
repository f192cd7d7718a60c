// What every transport must do, on in_process, shm and tcp alike.
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/random.h"
#include "gtest/gtest.h"
#include "kvtransfer/conformance_rig.h"
#include "kvtransfer/test_rig.h"

namespace baton::kvtransfer {
namespace {

namespace wire = worker::v1;

class TransportConformance : public testing::TestWithParam<const char*> {
 protected:
  void Make(const kv::KvLayout& layout, uint32_t blocks) {
    rig = std::make_unique<ConformanceRig>(GetParam(), layout, blocks);
  }
  void SetUp() override { Make(SmallLayout(), 32); }

  // Ends a connection on the thread that owns it.
  void Destroy(std::unique_ptr<DataConnection>& connection) {
    rig->OnLoop([&] { connection.reset(); });
  }
  // Sends all layers of the source's `blocks` as ordinals from `first`.
  void SendAll(DataConnection& connection, uint64_t request, uint32_t first,
               const std::vector<kv::BlockId>& blocks) {
    for (uint32_t layer = 0; layer < rig->source_arena->layout().layers.size(); ++layer) {
      connection.Send(TestAttempt(request), {layer, first, blocks});
    }
  }
  // Waits until this many whole blocks have landed: what is still on its way when a source goes may
  // be taken back by it, which is no loss.
  void AwaitLanded(uint64_t blocks) {
    const kv::KvLayout& layout = rig->source_arena->layout();
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < layout.layers.size(); ++layer) {
      for (uint32_t arena = 0; arena < layout.layers[layer].arenas.size(); ++arena) {
        bytes += layout.PieceBytes(layer, arena);
      }
    }
    while (rig->table->landed_bytes() < blocks * bytes) std::this_thread::yield();
  }
  void AwaitBacklogBelow(const DataConnection& connection, uint64_t request, uint64_t bytes) {
    uint64_t backlog = bytes;
    while (backlog >= bytes) {
      rig->OnLoop([&] { backlog = connection.Backlog(TestAttempt(request)); });
    }
  }
  void Transfer(DataConnection& connection, uint64_t request,
                const std::vector<kv::BlockId>& blocks) {
    connection.Open(TestAttempt(request), rig->Secret(request));
    SendAll(connection, request, 0, blocks);
    connection.Commit(TestAttempt(request), {{1, 2}, "state"});
  }
  void Accept(uint64_t request) {
    rig->OnLoop([&] { rig->table->Accept(TestAttempt(request)); });
  }
  void Drop(uint64_t request, Cause cause) {
    rig->OnLoop([&] { rig->table->Drop(TestAttempt(request), cause); });
  }
  void ExpectEqual(const std::vector<kv::BlockId>& from, const std::vector<kv::BlockId>& to) {
    for (uint32_t group = 0; group < rig->sink_arena->layout().groups.size(); ++group) {
      for (size_t i = 0; i < from.size(); ++i) {
        EXPECT_TRUE(SameBlock(*rig->source_arena, from[i], *rig->sink_arena, to[i], group))
            << "group " << group << " ordinal " << i;
      }
    }
  }
  // One transfer from start to end on a new connection: the sink still works.
  void ExpectStillServes(uint64_t request) {
    rig->Expect(request, 0, 1, {31});
    auto connection = rig->Connect();
    rig->OnLoop([&] { Transfer(*connection, request, {30}); });
    ASSERT_TRUE(rig->log.Await(Committed(request))) << rig->log.ToString();
    Accept(request);
    EXPECT_TRUE(rig->log.Await("reply " + std::to_string(request) + " unspecified"));
    ExpectEqual({30}, {31});
    Destroy(connection);
  }
  static std::string Committed(uint64_t request) {
    return "commit " + std::to_string(request) + " unspecified state";
  }

  std::unique_ptr<ConformanceRig> rig;
};

TEST_P(TransportConformance, BlocksLandWhereTheyWereGrantedAndTheCommitIsAnswered) {
  const std::vector<kv::BlockId> from = {3, 1, 4, 15, 9, 2};
  const std::vector<kv::BlockId> to = {7, 8, 30, 0, 12, 5};
  rig->Expect(1, 0, 6, {7, 8, 30, 0, 12, 5, 20});
  auto connection = rig->Connect();
  ASSERT_TRUE(rig->log.Await("connected"));
  rig->OnLoop([&] { Transfer(*connection, 1, from); });
  ASSERT_TRUE(rig->log.Await(Committed(1))) << rig->log.ToString();
  EXPECT_EQ(rig->log.Count("first 1"), 1);
  Accept(1);
  EXPECT_TRUE(rig->log.Await("reply 1 unspecified"));
  ExpectEqual(from, to);
  rig->OnLoop([&] { connection->Close(TestAttempt(1)); });
  EXPECT_TRUE(rig->log.Await("closed 1"));
  Destroy(connection);
}

TEST_P(TransportConformance, SeveralTransfersShareAConnection) {
  auto connection = rig->Connect();
  for (uint64_t i = 1; i <= 8; ++i) {
    rig->Expect(i, 0, 3,
                {static_cast<kv::BlockId>(3 * i), static_cast<kv::BlockId>(3 * i + 1),
                 static_cast<kv::BlockId>(3 * i + 2)});
  }
  rig->OnLoop([&] {
    for (uint64_t i = 1; i <= 8; ++i) {
      const auto b = static_cast<kv::BlockId>(i);
      Transfer(*connection, i, {b, b + 1, b + 2});
    }
  });
  for (uint64_t i = 1; i <= 8; ++i) {
    ASSERT_TRUE(rig->log.Await(Committed(i))) << rig->log.ToString();
    const auto b = static_cast<kv::BlockId>(i);
    ExpectEqual({b, b + 1, b + 2}, {3 * b, 3 * b + 1, 3 * b + 2});
  }
  Destroy(connection);
}

TEST_P(TransportConformance, LargeBlocksAreCutAndCreditsComeBack) {
  kv::KvLayout layout;
  layout.block_size = 64;
  layout.groups = {{0}};
  const kv::KvArenaSpec big{kv::KvDtype::kF32, kv::KvOrder::kHeadSlotDim, 24, 250};  // 1.5 MB
  layout.layers = {{0, {big, big}}, {0, {big, big}}};
  Make(layout, 4);
  rig->Expect(1, 0, 3, {3, 1, 0});
  rig->Expect(2, 0, 1, {2});
  auto connection = rig->Connect();
  rig->OnLoop([&] {
    Transfer(*connection, 1, {0, 1, 2});
    Transfer(*connection, 2, {3});
  });
  ASSERT_TRUE(rig->log.Await(Committed(1))) << rig->log.ToString();
  ASSERT_TRUE(rig->log.Await(Committed(2))) << rig->log.ToString();
  ExpectEqual({0, 1, 2}, {3, 1, 0});
  ExpectEqual({3}, {2});
  // Credit for the last pieces may still be on its way: it comes to less than 512 KiB of 9 MB.
  AwaitBacklogBelow(*connection, 1, uint64_t{512} << 10);
  rig->OnLoop([&] { EXPECT_EQ(connection->Backlog(TestAttempt(3)), 0u); });
  Destroy(connection);
}

TEST_P(TransportConformance, ACommitWithoutAllPiecesSaysSo) {
  rig->Expect(1, 0, 3, {1, 2, 3});
  auto connection = rig->Connect();
  rig->OnLoop([&] {
    connection->Open(TestAttempt(1), rig->Secret(1));
    SendAll(*connection, 1, 0, {1, 2});
    connection->Commit(TestAttempt(1), {{1, 2}, "state"});
  });
  ASSERT_TRUE(rig->log.Await("commit 1 missing_piece state")) << rig->log.ToString();
  Drop(1, wire::CAUSE_MISSING_PIECE);
  EXPECT_TRUE(rig->log.Await("reply 1 missing_piece"));
  EXPECT_TRUE(rig->log.Await("quiesced 1"));
  Destroy(connection);
}

TEST_P(TransportConformance, AnEmptyTransferCommits) {
  rig->Expect(1, 2, 2, {1, 2, 3});
  auto connection = rig->Connect();
  rig->OnLoop([&] {
    connection->Open(TestAttempt(1), rig->Secret(1));
    connection->Commit(TestAttempt(1), {{1, 2}, ""});
  });
  EXPECT_TRUE(rig->log.Await("commit 1 unspecified ")) << rig->log.ToString();
  Destroy(connection);
}

TEST_P(TransportConformance, AWrongSecretEndsTheConnectionAndNothingIsWritten) {
  rig->Expect(1, 0, 1, {1});
  auto connection = rig->Connect();
  rig->OnLoop([&] {
    connection->Open(TestAttempt(1), rig->Secret(1) + 1);
    SendAll(*connection, 1, 0, {1});
  });
  EXPECT_TRUE(rig->log.Await("ended")) << rig->log.ToString();
  EXPECT_TRUE(rig->SinkUntouched());
  Destroy(connection);
  ExpectStillServes(9);
}

TEST_P(TransportConformance, AnotherProcessOrUnknownSourceIsTurnedAway) {
  auto stale = rig->Connect(Epoch{7, 7});
  EXPECT_TRUE(rig->log.Await("ended", 1));
  rig->OnLoop([&] { rig->table->RemoveSource(kSourceEpoch); });
  auto unknown = rig->Connect();
  EXPECT_TRUE(rig->log.Await("ended", 2));
  Destroy(stale);
  Destroy(unknown);
}

TEST_P(TransportConformance, RemovingASourceEndsItsConnections) {
  rig->Expect(1, 0, 1, {1});
  auto connection = rig->Connect();
  rig->OnLoop([&] { connection->Open(TestAttempt(1), rig->Secret(1)); });
  rig->OnLoop([&] { SendAll(*connection, 1, 0, {1}); });
  ASSERT_TRUE(rig->log.Await("first 1"));
  rig->OnLoop([&] { rig->table->RemoveSource(kSourceEpoch); });
  EXPECT_TRUE(rig->log.Await("ended"));
  EXPECT_TRUE(rig->log.Await("failed 1 peer_lost"));
  Destroy(connection);
}

// The first may be dead without the sink's socket ever saying so.
TEST_P(TransportConformance, ASecondConnectionOfASourceEndsItsFirst) {
  rig->Expect(1, 0, 2, {1, 2});
  auto first = rig->Connect();
  rig->OnLoop([&] {
    first->Open(TestAttempt(1), rig->Secret(1));
    SendAll(*first, 1, 0, {1});
  });
  ASSERT_TRUE(rig->log.Await("first 1"));
  auto second = rig->Connect();
  EXPECT_TRUE(rig->log.Await("failed 1 peer_lost")) << rig->log.ToString();
  EXPECT_TRUE(rig->log.Await("ended"));
  EXPECT_EQ(rig->log.Count("ended"), 1);
  Drop(1, wire::CAUSE_PEER_LOST);
  EXPECT_TRUE(rig->log.Await("quiesced 1"));
  Destroy(first);
  Destroy(second);
  ExpectStillServes(9);
}

TEST_P(TransportConformance, ADeadSourceFailsItsTransfers) {
  rig->Expect(1, 0, 2, {1, 2});
  rig->Expect(2, 0, 0, {3});
  auto connection = rig->Connect();
  rig->OnLoop([&] {
    connection->Open(TestAttempt(1), rig->Secret(1));
    SendAll(*connection, 1, 0, {1});
    Transfer(*connection, 2, {});
  });
  AwaitLanded(1);
  ASSERT_TRUE(rig->log.Await(Committed(2)));
  Accept(2);
  Destroy(connection);
  EXPECT_TRUE(rig->log.Await("failed 1 peer_lost")) << rig->log.ToString();
  Drop(1, wire::CAUSE_PEER_LOST);
  EXPECT_TRUE(rig->log.Await("quiesced 1"));
  ExpectStillServes(9);
}

TEST_P(TransportConformance, ADeadSinkEndsTheConnection) {
  auto connection = rig->Connect();
  ASSERT_TRUE(rig->log.Await("connected"));
  rig->OnLoop([&] { rig->listener.reset(); });
  EXPECT_TRUE(rig->log.Await("ended"));
  Destroy(connection);
}

TEST_P(TransportConformance, NobodyThereEndsTheConnection) {
  const std::string address = rig->listener->address();
  rig->OnLoop([&] { rig->listener.reset(); });
  std::unique_ptr<DataConnection> connection;
  rig->OnLoop([&] {
    connection = rig->source_transport->Connect({address, kSourceEpoch, kSinkEpoch}, rig->source);
  });
  EXPECT_TRUE(rig->log.Await("ended"));
  EXPECT_EQ(rig->log.Count("connected"), 0);
  Destroy(connection);
}

TEST_P(TransportConformance, ClosingATransferEndsItForBothAndSparesTheOthers) {
  rig->Expect(1, 0, 2, {1, 2});
  rig->Expect(2, 0, 1, {3});
  auto connection = rig->Connect();
  rig->OnLoop([&] {
    connection->Open(TestAttempt(1), rig->Secret(1));
    SendAll(*connection, 1, 0, {1});
    connection->Open(TestAttempt(2), rig->Secret(2));
  });
  ASSERT_TRUE(rig->log.Await("first 1"));
  rig->OnLoop([&] { connection->Close(TestAttempt(1)); });
  EXPECT_TRUE(rig->log.Await("closed 1"));
  EXPECT_TRUE(rig->log.Await("failed 1 released")) << rig->log.ToString();
  rig->OnLoop([&] {
    SendAll(*connection, 2, 0, {5});
    connection->Commit(TestAttempt(2), {{1, 2}, "state"});
  });
  EXPECT_TRUE(rig->log.Await(Committed(2)));
  Destroy(connection);
}

// --- Peers that do not keep to the protocol.

TEST_P(TransportConformance, APieceOfATransferThatIsNotOpenEndsTheConnection) {
  rig->Expect(1, 0, 1, {1});
  auto peer = rig->ConnectRaw();
  peer->Send(peer->Piece(rig->Header(1, 0, 0, 0), {3}, false));
  EXPECT_TRUE(peer->AwaitEnd());
  EXPECT_TRUE(rig->SinkUntouched());
  ExpectStillServes(9);
}

TEST_P(TransportConformance, AnImpossibleHeaderEndsTheConnectionBeforeAnythingIsWritten) {
  const std::vector<std::function<void(PieceHeader&)>> lies = {
      [](PieceHeader& h) { h.layer = 3; },
      [](PieceHeader& h) { h.layer = 0xffffffff; },
      [](PieceHeader& h) { h.group = 1; },
      [](PieceHeader& h) { h.arena = 2; },
      [](PieceHeader& h) { h.shard = 1; },
      [](PieceHeader& h) { h.ordinal = 0; },  // the sink has it
      [](PieceHeader& h) { h.ordinal = 3; },  // room to grow
      [](PieceHeader& h) { h.ordinal = 0xffffffff; },
      [](PieceHeader& h) { h.offset = 512; },
      [](PieceHeader& h) { h.offset = 1; },  // nothing before it has come
      [](PieceHeader& h) { h.offset = 0xffffff00; },
      [](PieceHeader& h) { h.length = 0; },
      [](PieceHeader& h) { h.length = 5 * 512; },
      [](PieceHeader& h) { h.length = 0xffffffff; },
      [](PieceHeader& h) { h.source_epoch.lo ^= 1; },
      [](PieceHeader& h) { h.sink_epoch.hi ^= 1; },
      [](PieceHeader& h) { h.attempt.attempt = 2; },
      [](PieceHeader& h) { h.attempt.request = 77; },
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    const uint64_t request = 100 + i;
    rig->Expect(request, 1, 3, {1, 2, 3, 4});
    auto peer = rig->ConnectRaw();
    peer->Send(rig->Open(request));
    PieceHeader header = rig->Header(request, 0, 0, 1);
    lies[i](header);
    peer->Send(peer->Piece(header, {3}, false));
    EXPECT_TRUE(peer->AwaitEnd()) << "lie " << i;
    EXPECT_TRUE(rig->log.Await("failed " + std::to_string(request) + " malformed")) << "lie " << i;
  }
  EXPECT_TRUE(rig->SinkUntouched());
  ExpectStillServes(9);
}

TEST_P(TransportConformance, ADamagedPieceFailsOnlyItsTransfer) {
  rig->Expect(1, 0, 1, {1});
  rig->Expect(2, 0, 1, {2});
  auto peer = rig->ConnectRaw();
  peer->Send(rig->Open(1) + rig->Open(2));
  peer->Send(peer->Piece(rig->Header(1, 0, 0, 0), {3}, /*damaged=*/true));
  ASSERT_TRUE(rig->log.Await("failed 1 checksum_mismatch")) << rig->log.ToString();
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (uint32_t arena = 0; arena < 2; ++arena) {
      peer->Send(peer->Piece(rig->Header(1, layer, arena, 0), {3}, false));  // discarded
      peer->Send(peer->Piece(rig->Header(2, layer, arena, 0), {4}, false));
    }
  }
  peer->Send(Encode(CommitFrame{TestAttempt(2), {{1, 2}, "state"}}));
  EXPECT_TRUE(rig->log.Await(Committed(2))) << rig->log.ToString();
  ExpectEqual({4}, {2});
}

TEST_P(TransportConformance, APieceTwiceEndsTheConnection) {
  rig->Expect(1, 0, 2, {1, 2});
  auto peer = rig->ConnectRaw();
  const std::string piece = peer->Piece(rig->Header(1, 0, 0, 0), {3}, false);
  peer->Send(rig->Open(1) + piece + piece);
  EXPECT_TRUE(peer->AwaitEnd());
  EXPECT_TRUE(rig->log.Await("failed 1 malformed"));
}

TEST_P(TransportConformance, APieceAfterCommitEndsTheConnectionAndIsNotWritten) {
  rig->Expect(1, 0, 1, {1});
  auto peer = rig->ConnectRaw();
  peer->Send(rig->Open(1));
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (uint32_t arena = 0; arena < 2; ++arena) {
      peer->Send(peer->Piece(rig->Header(1, layer, arena, 0), {3}, false));
    }
  }
  peer->Send(Encode(CommitFrame{TestAttempt(1), {{1, 2}, "state"}}));
  ASSERT_TRUE(rig->log.Await(Committed(1)));
  Accept(1);
  // The block is the engine's now.
  rig->sink_arena->ZeroBlock(0, 1);
  rig->sink_arena->ZeroBlock(1, 1);
  peer->Send(peer->Piece(rig->Header(1, 0, 0, 0), {5}, false));
  EXPECT_TRUE(peer->AwaitEnd());
  EXPECT_TRUE(rig->SinkUntouched());
}

TEST_P(TransportConformance, ASecondOpenOrCommitEndsTheConnection) {
  rig->Expect(1, 1, 1, {1});
  rig->Expect(2, 1, 1, {2});
  auto peer = rig->ConnectRaw();
  peer->Send(rig->Open(1) + rig->Open(1));
  EXPECT_TRUE(peer->AwaitEnd());
  auto other = rig->ConnectRaw();
  const std::string commit = Encode(CommitFrame{TestAttempt(2), {{1, 2}, "state"}});
  other->Send(rig->Open(2) + commit + commit);
  EXPECT_TRUE(other->AwaitEnd());
}

TEST_P(TransportConformance, AfterADropNothingIsWrittenAndWhatComesIsDiscarded) {
  rig->Expect(1, 0, 2, {1, 2});
  auto peer = rig->ConnectRaw();
  const std::string first = peer->Piece(rig->Header(1, 0, 0, 0), {3}, false);
  // Of an inline piece half has come when the transfer is dropped.
  const size_t half = rig->scheme == "shm" ? 0 : first.size() / 2;
  peer->Send(rig->Open(1) + first.substr(0, half));
  Drop(1, wire::CAUSE_CANCELLED);
  ASSERT_TRUE(rig->log.Await("quiesced 1"));
  rig->sink_arena->ZeroBlock(0, 1);  // somebody else's now
  peer->Send(first.substr(half));
  peer->Send(peer->Piece(rig->Header(1, 2, 1, 0), {3}, false));
  peer->Send(Encode(CommitFrame{TestAttempt(1), {{1, 2}, "state"}}));
  peer->Send(EncodeClose(TestAttempt(1)));
  // The connection is alive and has handled all that when another transfer commits on it.
  rig->Expect(2, 1, 1, {9});
  peer->Send(rig->Open(2) + Encode(CommitFrame{TestAttempt(2), {{1, 2}, "state"}}));
  ASSERT_TRUE(rig->log.Await(Committed(2))) << rig->log.ToString();
  EXPECT_TRUE(rig->SinkUntouched());
  EXPECT_EQ(rig->log.Count("commit 1 unspecified state"), 0);
  EXPECT_EQ(rig->log.Count("quiesced 1"), 1);
}

TEST_P(TransportConformance, AnOpenThatCrossesADropIsHarmless) {
  rig->Expect(1, 0, 1, {1});
  Drop(1, wire::CAUSE_DEADLINE);
  ASSERT_TRUE(rig->log.Await("quiesced 1"));
  auto connection = rig->Connect();
  rig->OnLoop([&] { Transfer(*connection, 1, {3}); });
  EXPECT_TRUE(rig->log.Await("reply 1 deadline")) << rig->log.ToString();
  EXPECT_TRUE(rig->SinkUntouched());
  Destroy(connection);
}

TEST_P(TransportConformance, ATruncatedStreamFailsTheTransfer) {
  rig->Expect(1, 0, 1, {1});
  auto peer = rig->ConnectRaw();
  const std::string piece = peer->Piece(rig->Header(1, 0, 0, 0), {3}, false);
  peer->Send(rig->Open(1) + piece.substr(0, piece.size() - 3));
  peer->Send("");
  EXPECT_TRUE(rig->log.Await("failed 1 peer_lost")) << rig->log.ToString();
}

TEST_P(TransportConformance, BytesThatAreNoFramesEndOnlyTheirConnection) {
  for (const std::string& junk :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n        "), std::string(200, '\0'),
        std::string("BKV1\x09\0\0\0\xff\xff\xff\xff    ", 16),
        std::string("BKV1\xff\0\0\0\0\0\0\0", 12), Encode(CommitReplyFrame{TestAttempt(1), 0}),
        Encode(CommitFrame{TestAttempt(1), {}})}) {
    auto silent = rig->ConnectRaw(/*greet=*/false);
    silent->Send(junk);
    EXPECT_TRUE(silent->AwaitEnd());
    auto greeted = rig->ConnectRaw();
    greeted->Send(junk);
    EXPECT_TRUE(greeted->AwaitEnd());
  }
  EXPECT_TRUE(rig->SinkUntouched());
  ExpectStillServes(9);
}

TEST_P(TransportConformance, RandomDamageNeverCrashesNorTouchesOtherBlocks) {
  constexpr uint64_t kSeed = 20;
  SeededRandom random(kSeed);
  for (uint64_t round = 0; round < 60; ++round) {
    const uint64_t request = 200 + round;
    rig->Expect(request, 0, 1, {1});
    auto peer = rig->ConnectRaw();
    std::string bytes = rig->Open(request);
    for (uint32_t layer = 0; layer < 3; ++layer) {
      bytes += peer->Piece(rig->Header(request, layer, 0, 0), {3}, false);
    }
    for (uint64_t flips = random.Below(4); flips-- > 0;) {
      bytes[random.Below(bytes.size())] ^= static_cast<char>(1 << random.Below(8));
    }
    peer->Send(bytes);
    peer->Send("");
    peer.reset();
    Drop(request, wire::CAUSE_CANCELLED);
    ASSERT_TRUE(rig->log.Await("quiesced " + std::to_string(request))) << "round " << round;
  }
  rig->sink_arena->ZeroBlock(0, 1);
  rig->sink_arena->ZeroBlock(1, 1);
  EXPECT_TRUE(rig->SinkUntouched()) << "seed " << kSeed;
  ExpectStillServes(9);
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportConformance,
                         testing::Values("in_process", "shm", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace baton::kvtransfer
