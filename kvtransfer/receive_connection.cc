#include "kvtransfer/receive_connection.h"

#include <algorithm>
#include <utility>

#include "common/checked.h"
#include "common/status_macros.h"
#include "kvtransfer/receive_shared.h"

namespace baton::kvtransfer {
namespace {

using State = InboundTransfer::State;

constexpr uint64_t kCreditStep = uint64_t{2} << 20;
constexpr size_t kMaxOutbox = size_t{4} << 20;

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError("piece: " + std::string(what) + " out of range");
}

// Everything about the header that does not depend on what landed before.
absl::Status CheckHeader(const kv::KvLayout& layout, const std::vector<GrantedGroup>& groups,
                         const PieceHeader& header) {
  if (header.layer >= layout.layers.size()) return Malformed("layer");
  const kv::KvLayerSpec& layer = layout.layers[header.layer];
  if (header.group != layer.group) return Malformed("group");
  if (header.arena >= layer.arenas.size()) return Malformed("arena");
  if (header.shard >= layout.shards) return Malformed("shard");
  const GrantedGroup& group = groups[header.group];
  if (header.ordinal < group.first_needed || header.ordinal >= group.prompt_blocks) {
    return Malformed("block ordinal");
  }
  const uint64_t piece_bytes = layout.PieceBytes(header.layer, header.arena);
  if (header.offset >= piece_bytes) return Malformed("offset");
  const auto end = CheckedAdd<uint64_t>(header.offset, header.length);
  const auto room = CheckedMul<uint64_t>(group.prompt_blocks - header.ordinal, piece_bytes);
  if (!end || !room || *end > *room) return Malformed("length");
  return absl::OkStatus();
}

// Calls `visit(ordinal, offset, bytes)` for each block that the piece touches until it returns
// false.
template <typename Visit>
bool ForEachBlock(const PieceHeader& header, uint64_t piece_bytes, Visit visit) {
  uint64_t left = header.length;
  uint64_t offset = header.offset;
  for (uint32_t ordinal = header.ordinal; left > 0; ++ordinal, offset = 0) {
    const uint64_t bytes = std::min(left, piece_bytes - offset);
    if (!visit(ordinal, offset, bytes)) return false;
    left -= bytes;
  }
  return true;
}

}  // namespace

ReceiveConnection::ReceiveConnection(ReceiveTable& table, std::function<void()> wake)
    : shared_(table.shared_), wake_(std::move(wake)), end_cause_(worker::v1::CAUSE_PEER_LOST) {
  MutexLock lock(shared_->mutex);
  shared_->connections.insert(this);
  number_ = ++shared_->last_connection;
}

ReceiveConnection::~ReceiveConnection() {
  MutexLock lock(shared_->mutex);
  shared_->connections.erase(this);
  for (auto& entry : bound_) {
    entry.second->connection = nullptr;
    shared_->Fail(*entry.second, end_cause_);
  }
}

void ReceiveConnection::End(const absl::Status& why) {
  if (absl::IsInvalidArgument(why) || absl::IsPermissionDenied(why)) {
    end_cause_ = worker::v1::CAUSE_MALFORMED;
  }
}

absl::Status ReceiveConnection::OnFrame(FrameType type, std::string_view body) {
  if (!greeted_ && type != FrameType::kHello) {
    return absl::InvalidArgumentError("the first frame is not a hello");
  }
  switch (type) {
    case FrameType::kHello: {
      BATON_ASSIGN_OR_RETURN(const HelloFrame hello, DecodeHello(body));
      return OnHello(hello);
    }
    case FrameType::kOpen: {
      BATON_ASSIGN_OR_RETURN(const OpenFrame open, DecodeOpen(body));
      return OnOpen(open);
    }
    case FrameType::kCommit: {
      BATON_ASSIGN_OR_RETURN(CommitFrame commit, DecodeCommit(body));
      return OnCommit(std::move(commit));
    }
    case FrameType::kClose: {
      BATON_ASSIGN_OR_RETURN(const AttemptId attempt, DecodeClose(body));
      return OnClose(attempt);
    }
    default:
      return absl::InvalidArgumentError("a frame that a source does not send");
  }
}

absl::Status ReceiveConnection::OnHello(const HelloFrame& hello) {
  if (greeted_) return absl::InvalidArgumentError("second hello");
  if (hello.protocol_version != kProtocolVersion) {
    return absl::InvalidArgumentError("unknown protocol version");
  }
  if (hello.sink_epoch != shared_->sink_epoch) {
    return absl::FailedPreconditionError("STALE_EPOCH: meant for another process");
  }
  MutexLock lock(shared_->mutex);
  if (shared_->sources.count(hello.source_epoch) == 0) {
    return absl::FailedPreconditionError("STALE_EPOCH: no session of this source");
  }
  // A source has one connection. The older one is dead, whatever its socket says: no end of it may
  // ever come.
  for (ReceiveConnection* other : shared_->connections) {
    if (!other->greeted_ || other->source() != hello.source_epoch) continue;
    if (other->number_ > number_) {
      return absl::FailedPreconditionError("a newer connection of this source is here");
    }
    other->ended_ = true;
    other->wake_();
  }
  hello_ = hello;
  greeted_ = true;
  return absl::OkStatus();
}

absl::Status ReceiveConnection::OnOpen(const OpenFrame& open) {
  MutexLock lock(shared_->mutex);
  const auto it = shared_->transfers.find(open.attempt);
  if (it == shared_->transfers.end() || it->second->secret != open.secret ||
      it->second->source != hello_.source_epoch) {
    return absl::PermissionDeniedError("open: unknown transfer or wrong secret");
  }
  InboundTransfer& transfer = *it->second;
  if (transfer.connection != nullptr || transfer.state == State::kFailed) {
    return absl::InvalidArgumentError("open: the transfer was opened before");
  }
  transfer.connection = this;
  if (transfer.state == State::kExpected) transfer.state = State::kOpen;
  bound_.emplace(open.attempt, it->second);
  return absl::OkStatus();
}

std::shared_ptr<InboundTransfer> ReceiveConnection::Bound(const AttemptId& attempt) const {
  const auto it = bound_.find(attempt);
  return it == bound_.end() ? nullptr : it->second;
}

absl::Status ReceiveConnection::OnCommit(CommitFrame commit) {
  const std::shared_ptr<InboundTransfer> transfer = Bound(commit.attempt);
  if (transfer == nullptr) return absl::PermissionDeniedError("commit: the transfer is not open");
  MutexLock lock(shared_->mutex);
  switch (transfer->state) {
    case State::kOpen:
      break;
    case State::kFailed:
    case State::kDropped:
      shared_->Reply(*transfer, transfer->cause);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("second commit");
  }
  transfer->state = State::kCommitArrived;
  const Cause problem =
      transfer->remaining == 0 ? worker::v1::CAUSE_UNSPECIFIED : worker::v1::CAUSE_MISSING_PIECE;
  shared_->Post([attempt = commit.attempt, problem,
                 message = std::move(commit.message)](ReceiveTable::Listener& listener) {
    listener.OnCommitArrived(attempt, problem, message);
  });
  return absl::OkStatus();
}

absl::Status ReceiveConnection::OnClose(const AttemptId& attempt) {
  const auto it = bound_.find(attempt);
  if (it == bound_.end()) return absl::PermissionDeniedError("close: the transfer is not open");
  MutexLock lock(shared_->mutex);
  it->second->connection = nullptr;
  shared_->Fail(*it->second, worker::v1::CAUSE_RELEASED);
  bound_.erase(it);
  return absl::OkStatus();
}

absl::StatusOr<Landing> ReceiveConnection::BeginPiece(const PieceHeader& header) {
  const std::shared_ptr<InboundTransfer> transfer = Bound(header.attempt);
  if (transfer == nullptr) return absl::PermissionDeniedError("piece: the transfer is not open");
  if (header.source_epoch != hello_.source_epoch || header.sink_epoch != shared_->sink_epoch) {
    return absl::InvalidArgumentError("piece: epochs of another connection");
  }
  if (header.length == 0 || header.length > kMaxPieceBytes) return Malformed("length");
  Landing landing;
  landing.header_ = header;
  landing.transfer_ = transfer;
  MutexLock lock(shared_->mutex);
  if (transfer->state == State::kFailed || transfer->state == State::kDropped) return landing;
  if (transfer->state != State::kOpen) return absl::InvalidArgumentError("piece after commit");
  const kv::KvLayout& layout = shared_->arena.layout();
  BATON_RETURN_IF_ERROR(CheckHeader(layout, transfer->groups, header));
  const GrantedGroup& group = transfer->groups[header.group];
  const std::vector<uint32_t>& received = transfer->received[header.layer][header.arena];
  const uint64_t piece_bytes = layout.PieceBytes(header.layer, header.arena);
  landing.targets_.reserve(header.length / piece_bytes + 2);
  const auto add = [&](uint32_t ordinal, uint64_t offset, uint64_t bytes) {
    if (received[ordinal - group.first_needed] != offset) return false;
    const kv::BlockId block = group.blocks[ordinal];
    const auto piece = shared_->arena.Piece(header.layer, header.arena, block);
    landing.targets_.push_back(piece.subspan(offset, bytes));
    return true;
  };
  if (!ForEachBlock(header, piece_bytes, add)) {
    return absl::InvalidArgumentError("piece: sent before or out of order");
  }
  return landing;
}

bool ReceiveConnection::Enter(Landing& landing) {
  MutexLock lock(shared_->mutex);
  if (landing.transfer_->state != State::kOpen) return false;
  ++landing.transfer_->landings;
  return true;
}

void ReceiveConnection::Leave(Landing& landing) {
  MutexLock lock(shared_->mutex);
  --landing.transfer_->landings;
  if (landing.transfer_->landings == 0 && landing.transfer_->quiesce_due) {
    shared_->PostQuiesced(*landing.transfer_);
  }
}

void ReceiveConnection::EndPiece(Landing& landing, Verdict verdict) {
  MutexLock lock(shared_->mutex);
  InboundTransfer& transfer = *landing.transfer_;
  const PieceHeader& header = landing.header_;
  transfer.uncredited += header.length;
  if (transfer.uncredited >= kCreditStep) {
    Push(Encode(CreditFrame{transfer.attempt, std::exchange(transfer.uncredited, 0)}));
  }
  if (transfer.state != State::kOpen) return;
  if (verdict != Verdict::kIntact) {
    shared_->Fail(transfer, verdict == Verdict::kDamaged ? worker::v1::CAUSE_CHECKSUM_MISMATCH
                                                         : worker::v1::CAUSE_RELEASED);
    return;
  }
  const uint64_t piece_bytes = shared_->arena.layout().PieceBytes(header.layer, header.arena);
  std::vector<uint32_t>& received = transfer.received[header.layer][header.arena];
  const uint32_t first = transfer.groups[header.group].first_needed;
  ForEachBlock(header, piece_bytes, [&](uint32_t ordinal, uint64_t, uint64_t bytes) {
    received[ordinal - first] += static_cast<uint32_t>(bytes);
    return true;
  });
  transfer.remaining -= header.length;
  shared_->landed_bytes += header.length;
  if (std::exchange(transfer.landed_any, true)) return;
  shared_->Post([attempt = transfer.attempt](ReceiveTable::Listener& listener) {
    listener.OnFirstPiece(attempt);
  });
}

void ReceiveConnection::Push(std::string frame) {
  if (outbox_.size() + frame.size() > kMaxOutbox) {
    ended_ = true;  // a source that does not read its answers
  } else {
    outbox_ += frame;
  }
  wake_();
}

std::string ReceiveConnection::TakeOutbox() {
  MutexLock lock(shared_->mutex);
  return std::exchange(outbox_, {});
}

bool ReceiveConnection::ended() {
  MutexLock lock(shared_->mutex);
  return ended_;
}

}  // namespace baton::kvtransfer
