// A source's core, its transport and whatever the sink answers, in any order: credit is never
// overdrawn, frames are right, every close is reported once and never while a block is read, and a
// bad answer ends the connection with a status.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/sim_executor.h"
#include "kv/arena.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/send_queue.h"
#include "kvtransfer/test_rig.h"
#include "tests/fuzz/fuzz_input.h"

namespace baton::kvtransfer {
namespace {

constexpr uint32_t kTransfers = 4;
constexpr uint32_t kBlocks = 8;

// Pieces of 768 KiB, so that a few of them use the credit up.
kv::KvLayout BigLayout() {
  kv::KvLayout layout;
  layout.block_size = 64;
  layout.groups = {{0}};
  layout.layers = {{0, {{kv::KvDtype::kF32, kv::KvOrder::kHeadSlotDim, 16, 192}}}};
  return layout;
}

const kv::KvArena& TheArena() {
  static const kv::KvArena* const arena = MakeArena(BigLayout(), kBlocks).release();
  return *arena;
}

class World : private DataConnection::Listener {
 public:
  explicit World(FuzzInput& input) : input_(input) {}

  void Run() {
    while (!input_.empty() && !over_) Step();
    if (!over_) End(absl::UnavailableError("done"));
    BATON_CHECK(!queue_.Next().has_value());
    queue_.Open(TestAttempt(99), 1);  // too late, and harmless
    BATON_CHECK(sim_.RunUntilIdle());
    BATON_CHECK(ended_ == 1);
    for (const auto& [request, transfer] : transfers_) {
      BATON_CHECK(transfer.reports == (transfer.closed ? 1 : 0));
    }
  }

 private:
  struct Transfer {
    uint64_t given = 0;  // bytes to Send
    uint64_t sent = 0;   // taken by Next
    uint64_t credited = 0;
    bool closed = false;  // while the connection stood
    bool commit_given = false;
    int reports = 0;
    uint32_t next_ordinal = 0;
  };

  void Step() {
    const uint64_t request = 1 + input_.Below(kTransfers);
    switch (input_.Below(10)) {
      case 0:
        return Open(request);
      case 1:
        return Send(request);
      case 2:
        return Commit(request);
      case 3:
        return Close(request);
      case 4:
      case 5:
        return TakeFrame();
      case 6:
        return LeaveFrame();
      case 7:
        return Answer(request);
      case 8:
        return AnswerAnything();
      default:
        BATON_CHECK(sim_.RunUntilIdle());
    }
  }

  // nullptr: not open.
  Transfer* Live(uint64_t request) {
    const auto it = transfers_.find(Current(request));
    return it == transfers_.end() || it->second.closed ? nullptr : &it->second;
  }
  // A transfer that was closed is followed by one with another number.
  uint64_t Current(uint64_t request) const { return request + 100 * lives_[request - 1]; }
  AttemptId IdOf(uint64_t request) const { return TestAttempt(Current(request)); }

  void Open(uint64_t request) {
    if (Live(request) != nullptr) return;
    ++lives_[request - 1];
    transfers_[Current(request)] = {};
    queue_.Open(IdOf(request), request);
  }
  void Send(uint64_t request) {
    BlockRun run;
    for (uint32_t count = 1 + input_.Below(8); count > 0; --count) {
      run.blocks.push_back(input_.Below(kBlocks));
    }
    Transfer* const transfer = Live(request);
    if (transfer != nullptr) {
      run.first_ordinal = transfer->next_ordinal;
      transfer->next_ordinal += static_cast<uint32_t>(run.blocks.size());
      transfer->given += run.blocks.size() * TheArena().layout().PieceBytes(0, 0);
    }
    queue_.Send(IdOf(request), run);
    CheckBacklog(request);
  }
  void Commit(uint64_t request) {
    if (Transfer* const transfer = Live(request)) transfer->commit_given = true;
    queue_.Commit(IdOf(request), {{1, 2}, std::string(input_.ShortText())});
  }
  void Close(uint64_t request) {
    if (Transfer* const transfer = Live(request)) transfer->closed = true;
    queue_.Close(IdOf(request));
    BATON_CHECK(queue_.Backlog(IdOf(request)) == 0);
  }

  void TakeFrame() {
    if (frame_.has_value()) return LeaveFrame();
    auto frame = queue_.Next();
    if (!frame.has_value()) return;
    if (!frame->is_piece()) return CheckControl(frame->bytes);
    CheckPiece(*frame);
    if (!queue_.Enter(*frame)) {
      BATON_CHECK(transfers_.at(frame->header.attempt.request).closed);
      return;
    }
    frame_ = std::move(frame);
  }
  void LeaveFrame() {
    if (!frame_.has_value()) return;
    Transfer& transfer = transfers_.at(frame_->header.attempt.request);
    BATON_CHECK(sim_.RunUntilIdle());
    BATON_CHECK(transfer.reports == 0);  // its blocks are being read
    queue_.Leave(*frame_);
    frame_.reset();
    BATON_CHECK(sim_.RunUntilIdle());
    BATON_CHECK(transfer.reports == (transfer.closed ? 1 : 0));
  }

  static void CheckControl(std::string_view bytes) {
    BATON_CHECK(bytes.size() >= kPreludeBytes + kTrailerBytes);
    const auto prelude = DecodePrelude(bytes);
    BATON_CHECK(prelude.ok());
    BATON_CHECK(prelude->body_bytes + kPreludeBytes + kTrailerBytes == bytes.size());
    const size_t covered = bytes.size() - kTrailerBytes;
    BATON_CHECK(Crc32c(AsBytes(bytes.substr(0, covered))) == DecodeTrailer(bytes.substr(covered)));
  }
  void CheckPiece(const OutFrame& frame) {
    BATON_CHECK(frame.bytes.size() == kPieceHeadBytes);
    const auto prelude = DecodePrelude(frame.bytes);
    BATON_CHECK(prelude.ok() && prelude->type == FrameType::kPiece);
    BATON_CHECK(DecodePieceHeader(std::string_view(frame.bytes).substr(kPreludeBytes)) ==
                frame.header);
    size_t bytes = 0;
    for (const auto span : frame.payload) bytes += span.size();
    BATON_CHECK(bytes == frame.header.length && bytes <= kMaxPieceBytes);
    Transfer& transfer = transfers_.at(frame.header.attempt.request);
    transfer.sent += bytes;
    BATON_CHECK(transfer.sent <= transfer.given);
    BATON_CHECK(transfer.sent - transfer.credited <= kCreditWindow);
  }
  void CheckBacklog(uint64_t request) {
    const Transfer* const transfer = Live(request);
    const uint64_t expected = transfer == nullptr ? 0 : transfer->given - transfer->credited;
    BATON_CHECK(queue_.Backlog(IdOf(request)) == expected);
  }

  static std::string_view BodyOf(std::string_view frame) {
    return frame.substr(kPreludeBytes, frame.size() - kPreludeBytes - kTrailerBytes);
  }
  // A credit or a reply, which the input may have made too large or too early.
  void Answer(uint64_t request) {
    Transfer* const transfer = Live(request);
    const uint64_t on_the_way = transfer == nullptr ? 0 : transfer->sent - transfer->credited;
    const uint8_t kind = input_.Byte();
    if (kind < 0x80) {
      uint64_t bytes = kind < 0x70 ? on_the_way * (kind % 4) / 3 : input_.Number();
      if (kind == 0x7F) bytes = ~bytes;
      const std::string frame = Encode(CreditFrame{IdOf(request), bytes});
      const bool good = transfer == nullptr || bytes <= on_the_way;
      if (good && transfer != nullptr) transfer->credited += bytes;
      Take(queue_.OnFrame(FrameType::kCredit, BodyOf(frame)), good);
      if (!over_) CheckBacklog(request);
      return;
    }
    const std::string frame = Encode(CommitReplyFrame{IdOf(request), input_.Number()});
    Take(queue_.OnFrame(FrameType::kCommitReply, BodyOf(frame)),
         transfer == nullptr || transfer->commit_given);
  }
  // Bytes that are hardly a credit of a live transfer: only the end may follow from them.
  void AnswerAnything() {
    const auto type = static_cast<FrameType>(input_.Below(12));
    const std::string_view body = input_.ShortText();
    if (type == FrameType::kCredit) {
      const auto credit = DecodeCredit(body);
      if (credit.ok() && credit->attempt.router == IdOf(1).router) return;  // Answer's
      return Take(queue_.OnFrame(type, body), credit.ok());
    }
    const absl::Status status = queue_.OnFrame(type, body);
    BATON_CHECK(type == FrameType::kCommitReply || !status.ok());
    if (!status.ok()) End(status);
  }

  void Take(const absl::Status& status, bool good) {
    BATON_CHECK(status.ok() == good);
    if (status.ok()) return;
    BATON_CHECK(absl::IsInvalidArgument(status));
    End(status);
  }
  void End(absl::Status why) {
    LeaveFrame();
    over_ = true;
    queue_.End(std::move(why));
    for (uint64_t request = 1; request <= kTransfers; ++request) queue_.Close(IdOf(request));
  }

  void OnConnected() override {}
  void OnCommitReply(const AttemptId& attempt, Cause) override {
    BATON_CHECK(transfers_.at(attempt.request).commit_given && ended_ == 0);
  }
  void OnTransferClosed(const AttemptId& attempt) override {
    BATON_CHECK(ended_ == 0);
    ++transfers_.at(attempt.request).reports;
  }
  void OnEnded(absl::Status status) override {
    BATON_CHECK(!status.ok() && !status.message().empty());
    ++ended_;
  }

  FuzzInput& input_;
  SimWorld sim_;
  SimExecutor executor_{sim_, "source"};
  std::map<uint64_t, Transfer> transfers_;
  uint64_t lives_[kTransfers] = {};
  std::optional<OutFrame> frame_;  // between Enter and Leave
  bool over_ = false;
  int ended_ = 0;
  SendQueue queue_{{{"", {1, 1}, {2, 2}}, &TheArena(), &executor_, this, [] {}, nullptr}};
};

}  // namespace
}  // namespace baton::kvtransfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::FuzzInput input(data, size);
  baton::kvtransfer::World(input).Run();
  return 0;
}
