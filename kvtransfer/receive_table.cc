#include "kvtransfer/receive_table.h"

#include <utility>

#include "common/check.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/receive_connection.h"
#include "kvtransfer/receive_shared.h"

namespace baton::kvtransfer {

using State = InboundTransfer::State;

void ReceiveShared::Post(std::function<void(ReceiveTable::Listener&)> event) {
  executor.Post([self = shared_from_this(), event = std::move(event)] {
    if (self->listener != nullptr) event(*self->listener);
  });
}

void ReceiveShared::Fail(InboundTransfer& transfer, Cause cause) {
  if (transfer.state != State::kExpected && transfer.state != State::kOpen) return;
  transfer.state = State::kFailed;
  transfer.cause = cause;
  Post([attempt = transfer.attempt, cause](ReceiveTable::Listener& to) {
    to.OnTransferFailed(attempt, cause);
  });
}

void ReceiveShared::Reply(InboundTransfer& transfer, Cause cause) {
  if (transfer.connection == nullptr) return;
  transfer.connection->Push(
      Encode(CommitReplyFrame{transfer.attempt, static_cast<uint32_t>(cause)}));
}

void ReceiveShared::PostQuiesced(InboundTransfer& transfer) {
  transfer.quiesce_due = false;
  transfer.groups.clear();
  transfer.received.clear();
  Post([attempt = transfer.attempt](ReceiveTable::Listener& to) { to.OnQuiesced(attempt); });
}

ReceiveTable::ReceiveTable(const Epoch& sink_epoch, kv::KvArena& arena, Executor& executor,
                           Duration keep)
    : executor_(executor),
      keep_(keep),
      shared_(std::make_shared<ReceiveShared>(sink_epoch, arena, executor)) {}

ReceiveTable::~ReceiveTable() {
  shared_->listener = nullptr;
  MutexLock lock(shared_->mutex);
  BATON_CHECK(shared_->connections.empty());  // listeners go first
}

void ReceiveTable::SetListener(Listener* listener) { shared_->listener = listener; }

void ReceiveTable::AddSource(const Epoch& source) {
  MutexLock lock(shared_->mutex);
  shared_->sources.insert(source);
}

void ReceiveTable::RemoveSource(const Epoch& source) {
  MutexLock lock(shared_->mutex);
  shared_->sources.erase(source);
  for (ReceiveConnection* connection : shared_->connections) {
    if (!connection->greeted_ || connection->source() != source) continue;
    connection->ended_ = true;
    connection->wake_();
  }
}

namespace {

// Zero bytes received of every piece that must come; returns the bytes to come.
uint64_t PlanPieces(const kv::KvLayout& layout, InboundTransfer& transfer) {
  uint64_t total = 0;
  transfer.received.resize(layout.layers.size());
  for (uint32_t layer = 0; layer < layout.layers.size(); ++layer) {
    const GrantedGroup& group = transfer.groups[layout.layers[layer].group];
    const uint32_t blocks = group.prompt_blocks - group.first_needed;
    const size_t arenas = layout.layers[layer].arenas.size();
    transfer.received[layer].assign(arenas, std::vector<uint32_t>(blocks, 0));
    for (uint32_t arena = 0; arena < arenas; ++arena) {
      total += blocks * layout.PieceBytes(layer, arena);
    }
  }
  return total;
}

}  // namespace

void ReceiveTable::Expect(const AttemptId& attempt, const Epoch& source, uint64_t secret,
                          std::vector<GrantedGroup> groups) {
  const kv::KvLayout& layout = shared_->arena.layout();
  BATON_CHECK(groups.size() == layout.groups.size());
  for (uint32_t g = 0; g < groups.size(); ++g) {
    BATON_CHECK(groups[g].first_needed <= groups[g].prompt_blocks);
    BATON_CHECK(groups[g].prompt_blocks <= groups[g].blocks.size());
    for (uint32_t i = groups[g].first_needed; i < groups[g].prompt_blocks; ++i) {
      BATON_CHECK(groups[g].blocks[i] < shared_->arena.blocks(g));
    }
  }
  auto transfer = std::make_shared<InboundTransfer>();
  transfer->attempt = attempt;
  transfer->source = source;
  transfer->secret = secret;
  transfer->groups = std::move(groups);
  transfer->remaining = PlanPieces(layout, *transfer);
  MutexLock lock(shared_->mutex);
  shared_->ForgetDroppedBefore(executor_.Now() - keep_);
  BATON_CHECK(shared_->transfers.emplace(attempt, std::move(transfer)).second);
}

void ReceiveTable::Drop(const AttemptId& attempt, Cause cause) {
  MutexLock lock(shared_->mutex);
  const auto it = shared_->transfers.find(attempt);
  BATON_CHECK(it != shared_->transfers.end());
  InboundTransfer& transfer = *it->second;
  BATON_CHECK(transfer.state != State::kCommitted && transfer.state != State::kDropped);
  if (transfer.state == State::kCommitArrived) shared_->Reply(transfer, cause);
  transfer.state = State::kDropped;
  transfer.cause = cause;
  transfer.quiesce_due = true;
  if (transfer.landings == 0) shared_->PostQuiesced(transfer);
  shared_->dropped.emplace_back(executor_.Now(), attempt);
  shared_->ForgetDroppedBefore(executor_.Now() - keep_);
}

void ReceiveTable::Accept(const AttemptId& attempt) {
  MutexLock lock(shared_->mutex);
  const auto it = shared_->transfers.find(attempt);
  BATON_CHECK(it != shared_->transfers.end());
  InboundTransfer& transfer = *it->second;
  BATON_CHECK(transfer.state == State::kCommitArrived);
  transfer.state = State::kCommitted;
  transfer.groups.clear();
  transfer.received.clear();
  shared_->Reply(transfer, worker::v1::CAUSE_UNSPECIFIED);
  // Its connection keeps it until Close; nobody else can open it again.
  shared_->transfers.erase(it);
}

void ReceiveShared::ForgetDroppedBefore(Time old) {
  while (!dropped.empty() && dropped.front().first < old) {
    const auto it = transfers.find(dropped.front().second);
    if (it != transfers.end() && it->second->state == State::kDropped && !it->second->quiesce_due) {
      transfers.erase(it);
    }
    dropped.pop_front();
  }
}

const kv::KvLayout& ReceiveTable::layout() const { return shared_->arena.layout(); }

uint64_t ReceiveTable::landed_bytes() const {
  MutexLock lock(shared_->mutex);
  return shared_->landed_bytes;
}

size_t ReceiveTable::live() const {
  MutexLock lock(shared_->mutex);
  size_t count = 0;
  for (const auto& entry : shared_->transfers) {
    count += entry.second->state != State::kDropped || entry.second->quiesce_due ? 1 : 0;
  }
  return count;
}

}  // namespace baton::kvtransfer
