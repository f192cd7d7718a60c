#include "kvtransfer/send_queue.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/crc32c.h"
#include "common/status_macros.h"

namespace baton::kvtransfer {

// Guarded by SendQueue's mutex.
struct OutTransfer {
  // A whole control frame, or blocks of one (layer, arena).
  struct Item {
    std::string control;
    uint32_t layer = 0;
    uint32_t arena = 0;
    uint32_t first_ordinal = 0;
    std::vector<kv::BlockId> blocks;
    uint64_t sent = 0;  // bytes of the blocks
  };

  AttemptId attempt;
  uint64_t serial = 0;
  std::deque<Item> items;
  uint64_t backlog = 0;         // bytes given to Send without credit
  uint64_t unacknowledged = 0;  // the part of them that was sent
  GenerationTable::Slot slot;
  bool open_sent = false;
  bool commit_sent = false;
  bool closed = false;
  uint32_t reading = 0;  // frames between Enter and Leave
  bool report_due = false;
};

namespace {

OutTransfer::Item Control(std::string frame) {
  OutTransfer::Item item;
  item.control = std::move(frame);
  return item;
}

}  // namespace

SendQueue::SendQueue(Params params)
    : params_(std::move(params)), alive_(std::make_shared<bool>(true)) {}

SendQueue::~SendQueue() { *alive_ = false; }

void SendQueue::Post(std::function<void(DataConnection::Listener&)> event) {
  params_.executor->Post([alive = alive_, listener = params_.listener, event = std::move(event)] {
    if (*alive) event(*listener);
  });
}

std::shared_ptr<OutTransfer> SendQueue::FindLive(const AttemptId& attempt) const {
  const auto it = live_.find(attempt);
  return it == live_.end() ? nullptr : it->second;
}

void SendQueue::Open(const AttemptId& attempt, uint64_t secret) {
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    auto transfer = std::make_shared<OutTransfer>();
    transfer->attempt = attempt;
    transfer->serial = ++next_serial_;
    if (params_.generations != nullptr) {
      const auto slot = params_.generations->Take();
      BATON_CHECK(slot.has_value());  // 64 Ki transfers of one connection
      transfer->slot = *slot;
    }
    transfer->items.push_back(Control(Encode(OpenFrame{attempt, secret})));
    BATON_CHECK(live_.emplace(attempt, transfer).second);
    transfers_.emplace(transfer->serial, std::move(transfer));
  }
  params_.wake();
}

void SendQueue::Send(const AttemptId& attempt, const BlockRun& run) {
  if (run.blocks.empty()) return;
  {
    MutexLock lock(mutex_);
    const std::shared_ptr<OutTransfer> transfer = FindLive(attempt);
    if (ended_ || transfer == nullptr) return;
    BATON_CHECK(params_.arena != nullptr);
    const size_t arenas = params_.arena->layout().layers[run.layer].arenas.size();
    for (uint32_t arena = 0; arena < arenas; ++arena) {
      OutTransfer::Item item;
      item.layer = run.layer;
      item.arena = arena;
      item.first_ordinal = run.first_ordinal;
      item.blocks = run.blocks;
      transfer->backlog += run.blocks.size() * params_.arena->layout().PieceBytes(run.layer, arena);
      transfer->items.push_back(std::move(item));
    }
  }
  params_.wake();
}

void SendQueue::Commit(const AttemptId& attempt, CommitMessage message) {
  {
    MutexLock lock(mutex_);
    const std::shared_ptr<OutTransfer> transfer = FindLive(attempt);
    if (ended_ || transfer == nullptr) return;
    transfer->items.push_back(Control(Encode(CommitFrame{attempt, std::move(message)})));
    transfer->commit_sent = true;
  }
  params_.wake();
}

void SendQueue::Close(const AttemptId& attempt) {
  {
    MutexLock lock(mutex_);
    const std::shared_ptr<OutTransfer> transfer = FindLive(attempt);
    if (ended_ || transfer == nullptr) return;
    live_.erase(attempt);
    transfer->closed = true;
    transfer->items.clear();
    transfer->items.push_back(Control(transfer->open_sent ? EncodeClose(attempt) : ""));
    transfer->report_due = true;
    if (transfer->reading == 0) ReportClosed(*transfer);
  }
  params_.wake();
}

uint64_t SendQueue::Backlog(const AttemptId& attempt) const {
  MutexLock lock(mutex_);
  const std::shared_ptr<OutTransfer> transfer = FindLive(attempt);
  return transfer == nullptr ? 0 : transfer->backlog;
}

void SendQueue::ReportClosed(OutTransfer& transfer) {
  transfer.report_due = false;
  if (params_.generations != nullptr) params_.generations->Retire(transfer.slot.index);
  Post([attempt = transfer.attempt](DataConnection::Listener& listener) {
    listener.OnTransferClosed(attempt);
  });
}

std::string SendQueue::Hello() const {
  return Encode(
      HelloFrame{kProtocolVersion, params_.request.source_epoch, params_.request.sink_epoch});
}

void SendQueue::Connected() {
  Post([](DataConnection::Listener& listener) { listener.OnConnected(); });
}

std::optional<OutFrame> SendQueue::Next() {
  MutexLock lock(mutex_);
  if (ended_) return std::nullopt;
  // Everyone once, beginning after the one served last.
  std::vector<uint64_t> turn;
  for (auto it = transfers_.upper_bound(last_served_); it != transfers_.end(); ++it) {
    turn.push_back(it->first);
  }
  for (auto it = transfers_.begin(); it != transfers_.end() && it->first <= last_served_; ++it) {
    turn.push_back(it->first);
  }
  for (const uint64_t serial : turn) {
    OutTransfer& transfer = *transfers_.at(serial);
    std::optional<OutFrame> frame = NextOf(transfer);
    if (transfer.closed && transfer.items.empty()) transfers_.erase(serial);
    if (!frame.has_value()) continue;
    last_served_ = serial;
    return frame;
  }
  return std::nullopt;
}

std::optional<OutFrame> SendQueue::NextOf(OutTransfer& transfer) {
  if (transfer.items.empty()) return std::nullopt;
  OutTransfer::Item& item = transfer.items.front();
  if (item.blocks.empty()) {
    OutFrame frame;
    frame.bytes = std::move(item.control);
    transfer.items.pop_front();
    transfer.open_sent = true;
    if (frame.bytes.empty()) return std::nullopt;  // closed before it was opened
    return frame;
  }
  const uint64_t piece_bytes = params_.arena->layout().PieceBytes(item.layer, item.arena);
  const uint64_t offset = item.sent % piece_bytes;
  const uint64_t left = item.blocks.size() * piece_bytes - item.sent;
  // Whole pieces where they fit, so that their seals do.
  const uint64_t fitting = kMaxPieceBytes / piece_bytes * piece_bytes;
  const uint64_t by_bytes = fitting > 0 ? fitting : kMaxPieceBytes;
  const uint64_t by_blocks = kMaxBlocksPerFrame * piece_bytes - offset;
  const uint64_t length = std::min({left, by_blocks, by_bytes});
  if (transfer.unacknowledged + length > kCreditWindow) return std::nullopt;
  return NextPiece(transfer, static_cast<uint32_t>(length));
}

OutFrame SendQueue::NextPiece(OutTransfer& transfer, uint32_t length) {
  OutTransfer::Item& item = transfer.items.front();
  const kv::KvLayout& layout = params_.arena->layout();
  const uint64_t piece_bytes = layout.PieceBytes(item.layer, item.arena);
  uint64_t index = item.sent / piece_bytes;
  uint64_t offset = item.sent % piece_bytes;
  OutFrame frame;
  frame.header = {transfer.attempt,
                  params_.request.source_epoch,
                  params_.request.sink_epoch,
                  item.layer,
                  layout.layers[item.layer].group,
                  item.arena,
                  /*shard=*/0,
                  item.first_ordinal + static_cast<uint32_t>(index),
                  static_cast<uint32_t>(offset),
                  length};
  frame.payload.reserve(length / piece_bytes + 2);
  frame.blocks.reserve(length / piece_bytes + 2);
  for (uint64_t left = length; left > 0; ++index, offset = 0) {
    const uint64_t bytes = std::min(left, piece_bytes - offset);
    const auto piece = params_.arena->Piece(item.layer, item.arena, item.blocks[index]);
    frame.payload.push_back(piece.subspan(offset, bytes));
    frame.blocks.push_back(item.blocks[index]);
    left -= bytes;
  }
  frame.bytes = EncodePieceHead(frame.header);
  frame.generation_slot = transfer.slot.index;
  frame.generation = transfer.slot.generation;
  frame.transfer = transfers_.at(transfer.serial);
  item.sent += length;
  transfer.unacknowledged += length;
  if (item.sent == item.blocks.size() * piece_bytes) transfer.items.pop_front();
  return frame;
}

bool SendQueue::Enter(const OutFrame& frame) {
  MutexLock lock(mutex_);
  if (frame.transfer->closed) return false;
  ++frame.transfer->reading;
  return true;
}

void SendQueue::Leave(const OutFrame& frame) {
  MutexLock lock(mutex_);
  OutTransfer& transfer = *frame.transfer;
  --transfer.reading;
  if (transfer.reading == 0 && transfer.report_due) ReportClosed(transfer);
}

uint32_t SendQueue::FrameCrc(const OutFrame& frame) {
  uint32_t crc = Crc32c(AsBytes(frame.bytes));
  if (const auto sealed = SealedCrc(frame, crc)) return *sealed;
  for (const auto span : frame.payload) crc = ExtendCrc32c(crc, span);
  return crc;
}

std::optional<uint32_t> SendQueue::SealedCrc(const OutFrame& frame, uint32_t head_crc) {
  const kv::PieceSeals* const seals = params_.arena->seals();
  const PieceHeader& header = frame.header;
  const uint64_t piece_bytes = params_.arena->layout().PieceBytes(header.layer, header.arena);
  if (seals == nullptr || header.length != frame.blocks.size() * piece_bytes) return std::nullopt;
  const Crc32cConcat& concat = concat_.try_emplace(piece_bytes, piece_bytes).first->second;
  uint32_t crc = head_crc;
  for (const kv::BlockId block : frame.blocks) {
    const std::optional<uint32_t> seal = seals->Crc(header.layer, header.arena, block);
    if (!seal.has_value()) return std::nullopt;
    crc = concat(crc, *seal);
  }
  return crc;
}

absl::Status SendQueue::OnFrame(FrameType type, std::string_view body) {
  if (type == FrameType::kCredit) {
    BATON_ASSIGN_OR_RETURN(const CreditFrame credit, DecodeCredit(body));
    MutexLock lock(mutex_);
    const std::shared_ptr<OutTransfer> transfer = FindLive(credit.attempt);
    if (transfer == nullptr) return absl::OkStatus();
    if (credit.bytes > transfer->unacknowledged) {
      return absl::InvalidArgumentError("credit for bytes that were not sent");
    }
    transfer->unacknowledged -= credit.bytes;
    transfer->backlog -= credit.bytes;
    return absl::OkStatus();
  }
  if (type != FrameType::kCommitReply) {
    return absl::InvalidArgumentError("a frame that a sink does not send");
  }
  BATON_ASSIGN_OR_RETURN(const CommitReplyFrame reply, DecodeCommitReply(body));
  MutexLock lock(mutex_);
  const std::shared_ptr<OutTransfer> transfer = FindLive(reply.attempt);
  if (transfer == nullptr) return absl::OkStatus();
  if (!transfer->commit_sent) return absl::InvalidArgumentError("reply without a commit");
  const Cause cause = reply.cause == 0 ? worker::v1::CAUSE_UNSPECIFIED
                                       : CauseFromPeer(static_cast<int>(reply.cause));
  Post([attempt = reply.attempt, cause](DataConnection::Listener& listener) {
    listener.OnCommitReply(attempt, cause);
  });
  return absl::OkStatus();
}

void SendQueue::End(absl::Status why) {
  MutexLock lock(mutex_);
  if (ended_) return;
  ended_ = true;
  for (auto& entry : transfers_) {
    OutTransfer& transfer = *entry.second;
    BATON_CHECK(transfer.reading == 0);
    const bool retired = transfer.closed && !transfer.report_due;
    if (params_.generations != nullptr && !retired) {
      params_.generations->Retire(transfer.slot.index);
    }
  }
  Post([why = std::move(why)](DataConnection::Listener& listener) { listener.OnEnded(why); });
}

}  // namespace baton::kvtransfer
