#include "kvtransfer/send_queue.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/crc32c.h"
#include "common/sim_executor.h"
#include "gtest/gtest.h"
#include "kvtransfer/test_rig.h"

namespace baton::kvtransfer {
namespace {

class SendQueueTest : public testing::Test, public DataConnection::Listener {
 protected:
  SendQueueTest()
      : queue_({{"", {1, 1}, {2, 2}},
                arena_.get(),
                &executor_,
                this,
                [this] { ++wakes_; },
                &generations_}) {}

  struct Generations : GenerationTable {
    std::optional<Slot> Take() override { return Slot{next++, 5}; }
    void Retire(uint32_t index) override { ++retired[index]; }
    uint32_t next = 0;
    std::map<uint32_t, int> retired;
  };

  static kv::KvLayout BigLayout() {
    kv::KvLayout layout;
    layout.block_size = 64;
    layout.groups = {{0}};
    const kv::KvArenaSpec spec{kv::KvDtype::kF32, kv::KvOrder::kHeadSlotDim, 16, 192};  // 768 KiB
    layout.layers = {{0, {spec}}};
    return layout;
  }

  void OnConnected() override {}
  void OnCommitReply(const AttemptId&, Cause) override { ++replies_; }
  void OnTransferClosed(const AttemptId& attempt) override { ++closed_[attempt.request]; }
  void OnEnded(absl::Status) override { ++ended_; }

  void Run() { ASSERT_TRUE(world_.RunUntilIdle()); }
  absl::Status Credit(uint64_t request, uint64_t bytes) {
    const std::string frame = Encode(CreditFrame{TestAttempt(request), bytes});
    return queue_.OnFrame(FrameType::kCredit,
                          std::string_view(frame).substr(
                              kPreludeBytes, frame.size() - kPreludeBytes - kTrailerBytes));
  }
  // The requests of the next pieces, in order, control frames as 0.
  std::vector<uint64_t> Drain() {
    std::vector<uint64_t> order;
    while (const auto frame = queue_.Next()) {
      order.push_back(frame->is_piece() ? frame->header.attempt.request : 0);
    }
    return order;
  }

  SimWorld world_;
  SimExecutor executor_{world_, "source"};
  std::unique_ptr<kv::KvArena> arena_ = MakeArena(BigLayout(), 16);
  Generations generations_;
  int wakes_ = 0;
  int replies_ = 0;
  int ended_ = 0;
  std::map<uint64_t, int> closed_;
  SendQueue queue_;
};

TEST_F(SendQueueTest, TransfersTakeTurnsAndStopWithoutCredit) {
  for (uint64_t request : {1, 2}) {
    queue_.Open(TestAttempt(request), 1);
    for (uint32_t run = 0; run < 3; ++run) {
      queue_.Send(TestAttempt(request), {0, 8 * run, {0, 1, 2, 3, 4, 5, 6, 7}});  // 6 MiB
    }
  }
  // Whole blocks: 21 of them fit the window of 16 MiB.
  std::vector<uint64_t> order = {0, 0};
  for (int i = 0; i < 21; ++i) order.insert(order.end(), {1, 2});
  EXPECT_EQ(Drain(), order);
  ASSERT_TRUE(Credit(2, 1 << 20).ok());
  EXPECT_EQ(Drain(), (std::vector<uint64_t>{2}));
  ASSERT_TRUE(Credit(1, 4 << 20).ok());
  queue_.Commit(TestAttempt(1), {});
  EXPECT_EQ(Drain(), (std::vector<uint64_t>{1, 1, 1, 0}));
  EXPECT_EQ(queue_.Backlog(TestAttempt(1)), uint64_t{14} << 20);
  EXPECT_EQ(queue_.Backlog(TestAttempt(2)), uint64_t{17} << 20);
  queue_.Close(TestAttempt(2));
  EXPECT_EQ(queue_.Backlog(TestAttempt(2)), 0u);
}

TEST_F(SendQueueTest, TheCrcOfAFrameIsTakenFromSealsAndElseFromTheBytes) {
  for (kv::BlockId block : {0, 1, 2}) {
    const auto piece = arena_->Piece(0, 0, block);
    std::fill(piece.begin(), piece.end(), static_cast<std::byte>(block + 1));
  }
  queue_.Open(TestAttempt(1), 1);
  queue_.Send(TestAttempt(1), {0, 0, {2}});
  queue_.Next();  // open
  const auto frame = queue_.Next();
  const auto crc = [&] {
    return ExtendCrc32c(Crc32c(AsBytes(frame->bytes)), std::as_const(*arena_).Piece(0, 0, 2));
  };
  EXPECT_EQ(queue_.FrameCrc(*frame), crc());
  arena_->seals()->Seal(arena_->view(), 0, 2);
  EXPECT_EQ(queue_.FrameCrc(*frame), crc());
  // Damage after the seal is not hidden by a new CRC: the sink will find it.
  const uint32_t sealed = crc();
  arena_->Piece(0, 0, 2)[5] ^= std::byte{1};
  EXPECT_EQ(queue_.FrameCrc(*frame), sealed);
  arena_->seals()->Break(0, 2);
  EXPECT_EQ(queue_.FrameCrc(*frame), crc());
}

TEST_F(SendQueueTest, AClosedTransferIsReportedWhenNothingIsRead) {
  queue_.Open(TestAttempt(1), 1);
  queue_.Send(TestAttempt(1), {0, 0, {0, 1}});
  queue_.Next();  // open
  const auto piece = queue_.Next();
  ASSERT_TRUE(piece->is_piece());
  ASSERT_TRUE(queue_.Enter(*piece));
  queue_.Close(TestAttempt(1));
  Run();
  EXPECT_EQ(closed_[1], 0);
  EXPECT_TRUE(generations_.retired.empty());
  queue_.Leave(*piece);
  EXPECT_FALSE(queue_.Enter(*piece));
  Run();
  EXPECT_EQ(closed_[1], 1);
  EXPECT_EQ(generations_.retired[0], 1);
  // What was queued is gone but for Close.
  EXPECT_EQ(queue_.Next()->bytes, EncodeClose(TestAttempt(1)));
  EXPECT_FALSE(queue_.Next().has_value());
}

TEST_F(SendQueueTest, ATransferClosedBeforeItWasOpenedIsNeverMentioned) {
  queue_.Open(TestAttempt(1), 1);
  queue_.Send(TestAttempt(1), {0, 0, {0}});
  queue_.Close(TestAttempt(1));
  EXPECT_FALSE(queue_.Next().has_value());
  Run();
  EXPECT_EQ(closed_[1], 1);
}

TEST_F(SendQueueTest, TheEndOfTheConnectionRetiresEveryTransferOnce) {
  queue_.Open(TestAttempt(1), 1);
  queue_.Open(TestAttempt(2), 1);
  queue_.Close(TestAttempt(1));
  queue_.End(absl::UnavailableError("gone"));
  queue_.Send(TestAttempt(2), {0, 0, {0}});
  queue_.Close(TestAttempt(2));
  Run();
  EXPECT_EQ(ended_, 1);
  EXPECT_EQ(generations_.retired, (std::map<uint32_t, int>{{0, 1}, {1, 1}}));
  EXPECT_FALSE(queue_.Next().has_value());
}

TEST_F(SendQueueTest, ASinkThatAnswersWhatWasNotAskedEndsTheConnection) {
  queue_.Open(TestAttempt(1), 1);
  const std::string reply = Encode(CommitReplyFrame{TestAttempt(1), 0});
  const auto body =
      std::string_view(reply).substr(kPreludeBytes, reply.size() - kPreludeBytes - kTrailerBytes);
  EXPECT_FALSE(queue_.OnFrame(FrameType::kCommitReply, body).ok());
  EXPECT_FALSE(Credit(1, 1).ok());
  EXPECT_TRUE(Credit(7, 1).ok());  // a transfer that was closed here meanwhile
  EXPECT_FALSE(queue_.OnFrame(FrameType::kHello, "").ok());
  queue_.Commit(TestAttempt(1), {});
  EXPECT_TRUE(queue_.OnFrame(FrameType::kCommitReply, body).ok());
  Run();
  EXPECT_EQ(replies_, 1);
}

}  // namespace
}  // namespace baton::kvtransfer
