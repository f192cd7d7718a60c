// Any bytes, and any valid frames in any order, twice or damaged, on the sink's end of data
// connections, while its core drops and accepts as it likes: nothing outside the granted blocks
// changes, nothing changes after a transfer is quiet, commits arrive only when every piece has, and
// every transfer ends in exactly one way.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/sim_executor.h"
#include "kv/arena.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/frame_buffer.h"
#include "kvtransfer/receive_connection.h"
#include "kvtransfer/receive_table.h"
#include "kvtransfer/socket.h"
#include "kvtransfer/tcp_reader.h"
#include "kvtransfer/test_rig.h"
#include "tests/fuzz/fuzz_input.h"

namespace baton::kvtransfer {
namespace {

constexpr Epoch kSource{1, 1};
constexpr Epoch kSink{2, 2};
constexpr uint32_t kTransfers = 3;
constexpr uint32_t kBlocks = 12;      // of each group
constexpr uint32_t kPerTransfer = 3;  // blocks, of them 2 for the prompt
constexpr uint32_t kConnections = 2;
constexpr std::byte kUntouched{0xA5};

uint64_t SecretOf(uint32_t transfer) { return 1000 + transfer; }

// How bytes become frames and pieces: as in_process and shm read them, and as tcp does.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual absl::Status Read(std::string_view bytes, ReceiveConnection& connection) = 0;
};

class BufferReader : public Reader {
 public:
  absl::Status Read(std::string_view bytes, ReceiveConnection& connection) override {
    buffer_.Append(bytes);
    while (true) {
      const auto frame = buffer_.Next(connection.greeted() ? kMaxBodyBytes : 64);
      if (!frame.ok()) return frame.status();
      if (!frame->has_value()) return absl::OkStatus();
      const absl::Status status = (*frame)->type == FrameType::kPiece
                                      ? OnPiece(**frame, connection)
                                      : connection.OnFrame((*frame)->type, (*frame)->body);
      if (!status.ok()) return status;
    }
  }

 private:
  static absl::Status OnPiece(const FrameBuffer::Whole& frame, ReceiveConnection& connection) {
    const PieceHeader header = DecodePieceHeader(frame.body);
    std::string_view payload = frame.body.substr(kPieceHeaderBytes);
    if (!connection.greeted() || header.length != payload.size()) {
      return absl::InvalidArgumentError("piece");
    }
    auto landing = connection.BeginPiece(header);
    if (!landing.ok()) return landing.status();
    if (connection.Enter(*landing)) {
      for (const std::span<std::byte> target : landing->targets()) {
        BATON_CHECK(target.size() <= payload.size());
        std::memcpy(target.data(), payload.data(), target.size());
        payload.remove_prefix(target.size());
      }
      BATON_CHECK(payload.empty());
      connection.Leave(*landing);
    }
    using Verdict = ReceiveConnection::Verdict;
    connection.EndPiece(*landing, frame.intact     ? Verdict::kIntact
                                  : frame.given_up ? Verdict::kGivenUp
                                                   : Verdict::kDamaged);
    return absl::OkStatus();
  }

  FrameBuffer buffer_;
};

class SocketReader : public Reader {
 public:
  SocketReader() {
    std::array<int, 2> pair{};
    BATON_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.data()) == 0);
    write_ = UniqueFd(pair[0]);
    read_ = UniqueFd(pair[1]);
  }

  absl::Status Read(std::string_view bytes, ReceiveConnection& connection) override {
    do {
      if (!bytes.empty()) {
        const ssize_t n = send(write_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
      }
      absl::StatusOr<bool> more = true;
      while (more.ok() && *more) more = reader_.ReadSome(read_.get(), connection);
      if (!more.ok()) return more.status();
    } while (!bytes.empty());
    return absl::OkStatus();
  }

 private:
  UniqueFd write_;
  UniqueFd read_;
  TcpReader reader_;
};

// A sink with some transfers granted, and what it knows of each.
class World : private ReceiveTable::Listener {
 public:
  explicit World(bool sockets) : sockets_(sockets) {
    for (uint32_t group = 0; group < arena_->layout().groups.size(); ++group) {
      for (kv::BlockId block = 0; block < kBlocks; ++block) FillBlock(group, block);
    }
    table_->SetListener(this);
    table_->AddSource(kSource);
    for (uint32_t t = 0; t < kTransfers; ++t) {
      std::vector<GrantedGroup> groups(arena_->layout().groups.size());
      for (uint32_t group = 0; group < groups.size(); ++group) {
        groups[group].first_needed = t == 1 ? 1 : 0;
        groups[group].prompt_blocks = 2;
        for (uint32_t i = 0; i < kPerTransfer; ++i) {
          groups[group].blocks.push_back(BlockOf(t, i));
        }
      }
      table_->Expect(TestAttempt(t + 1), kSource, SecretOf(t), groups);
    }
  }

  ~World() override { connections_ = {}; }

  const kv::KvLayout& layout() const { return arena_->layout(); }

  void Feed(uint32_t index, std::string_view bytes) {
    Connection& at = connections_[index];
    if (at.receive == nullptr) {
      at.receive = std::make_unique<ReceiveConnection>(*table_, [] {});
      if (sockets_) {
        at.reader = std::make_unique<SocketReader>();
      } else {
        at.reader = std::make_unique<BufferReader>();
      }
    }
    const absl::Status status = at.reader->Read(bytes, *at.receive);
    if (!status.ok()) {
      BATON_CHECK(!status.message().empty());
      at.receive->End(status);
      at = {};
    } else if (at.receive->ended()) {
      at = {};
    } else {
      at.receive->TakeOutbox();
    }
  }
  void Disconnect(uint32_t index) { connections_[index] = {}; }

  void Drop(uint32_t transfer) {
    Transfer& t = transfers_[transfer];
    if (t.dropped || t.accepted) return;
    t.dropped = true;
    t.kept_crc = CrcOf(transfer);  // no landing is under way between two calls
    table_->Drop(TestAttempt(transfer + 1), worker::v1::CAUSE_CANCELLED);
  }
  void ForgetSource() { table_->RemoveSource(kSource); }
  void RunEvents() { BATON_CHECK(sim_.RunUntilIdle()); }

  // Whatever came: the fence holds, and everything ends.
  void CheckAndEnd() {
    RunEvents();
    CheckBlocks();
    connections_ = {};
    RunEvents();
    size_t live = 0;
    for (const Transfer& t : transfers_) live += t.dropped || t.accepted ? 0 : 1;
    BATON_CHECK(table_->live() == live);
    for (uint32_t t = 0; t < kTransfers; ++t) Drop(t);
    RunEvents();
    BATON_CHECK(table_->live() == 0);
    for (const Transfer& t : transfers_) {
      BATON_CHECK(t.dropped != t.accepted && t.quiesced == t.dropped);
      BATON_CHECK(!(t.failed && t.committed));
    }
    CheckBlocks();
  }

 private:
  struct Connection {
    std::unique_ptr<Reader> reader;
    std::unique_ptr<ReceiveConnection> receive;
  };
  struct Transfer {
    bool first_piece = false;
    bool committed = false;  // the commit came
    bool failed = false;
    bool dropped = false;
    bool accepted = false;
    bool quiesced = false;
    uint32_t kept_crc = 0;  // of its blocks when it was dropped or accepted
  };

  static kv::BlockId BlockOf(uint32_t transfer, uint32_t i) { return transfer * kPerTransfer + i; }

  template <typename Visit>
  void ForEachPiece(uint32_t group, kv::BlockId block, Visit visit) {
    for (uint32_t layer = 0; layer < layout().layers.size(); ++layer) {
      if (layout().layers[layer].group != group) continue;
      for (uint32_t arena = 0; arena < layout().layers[layer].arenas.size(); ++arena) {
        visit(arena_->Piece(layer, arena, block));
      }
    }
  }
  void FillBlock(uint32_t group, kv::BlockId block) {
    ForEachPiece(group, block, [](std::span<std::byte> piece) {
      std::memset(piece.data(), static_cast<int>(kUntouched), piece.size());
    });
  }
  bool Untouched(uint32_t group, kv::BlockId block) {
    bool same = true;
    ForEachPiece(group, block, [&](std::span<std::byte> piece) {
      static const std::vector<std::byte> expected(4096, kUntouched);
      BATON_CHECK(piece.size() <= expected.size());
      same = same && std::memcmp(piece.data(), expected.data(), piece.size()) == 0;
    });
    return same;
  }
  uint32_t CrcOf(uint32_t transfer) {
    uint32_t crc = 0;
    for (uint32_t group = 0; group < layout().groups.size(); ++group) {
      for (uint32_t i = 0; i < kPerTransfer; ++i) {
        ForEachPiece(group, BlockOf(transfer, i),
                     [&](std::span<std::byte> piece) { crc = ExtendCrc32c(crc, piece); });
      }
    }
    return crc;
  }

  void CheckBlocks() {
    for (uint32_t group = 0; group < layout().groups.size(); ++group) {
      for (kv::BlockId block = kTransfers * kPerTransfer; block < kBlocks; ++block) {
        BATON_CHECK(Untouched(group, block));  // nobody's
      }
      for (uint32_t t = 0; t < kTransfers; ++t) {
        BATON_CHECK(Untouched(group, BlockOf(t, 2)));  // room to grow
      }
      BATON_CHECK(Untouched(group, BlockOf(1, 0)));  // of a prefix that is there already
    }
    for (uint32_t t = 0; t < kTransfers; ++t) {
      if (transfers_[t].dropped || transfers_[t].accepted) {
        BATON_CHECK(CrcOf(t) == transfers_[t].kept_crc);
      }
    }
  }

  Transfer& Of(const AttemptId& attempt) {
    BATON_CHECK(attempt.request >= 1 && attempt.request <= kTransfers);
    return transfers_[attempt.request - 1];
  }
  void OnFirstPiece(const AttemptId& attempt) override {
    BATON_CHECK(!Of(attempt).first_piece && !Of(attempt).committed);
    Of(attempt).first_piece = true;
  }
  void OnCommitArrived(const AttemptId& attempt, Cause problem, CommitMessage) override {
    Transfer& t = Of(attempt);
    BATON_CHECK(!t.committed && !t.failed);
    t.committed = true;
    if (t.dropped || problem != worker::v1::CAUSE_UNSPECIFIED) return;
    BATON_CHECK(t.first_piece);
    t.accepted = true;
    table_->Accept(attempt);
    t.kept_crc = CrcOf(static_cast<uint32_t>(attempt.request - 1));
  }
  void OnTransferFailed(const AttemptId& attempt, Cause cause) override {
    Transfer& t = Of(attempt);
    BATON_CHECK(!t.committed && !t.failed && cause != worker::v1::CAUSE_UNSPECIFIED);
    t.failed = true;
  }
  void OnQuiesced(const AttemptId& attempt) override {
    Transfer& t = Of(attempt);
    BATON_CHECK(t.dropped && !t.quiesced);
    t.quiesced = true;
  }

  const bool sockets_;
  SimWorld sim_;
  SimExecutor executor_{sim_, "sink"};
  std::unique_ptr<kv::KvArena> arena_ = MakeArena(SmallLayout(), kBlocks);
  std::unique_ptr<ReceiveTable> table_ =
      std::make_unique<ReceiveTable>(kSink, *arena_, executor_, std::chrono::seconds(20));
  std::array<Transfer, kTransfers> transfers_;
  std::array<Connection, kConnections> connections_;
};

// Frames as a source makes them, but for what the input changes.
class FrameMaker {
 public:
  FrameMaker(const kv::KvLayout& layout, FuzzInput& input) : layout_(layout), input_(input) {}

  std::string Next() {
    std::string frame = Valid();
    const uint8_t damage = input_.Byte();
    if (damage >= 0xE0 && !frame.empty()) {
      frame[input_.Number() % frame.size()] ^= static_cast<char>(damage | 1);
      if ((damage & 8) != 0) Reseal(frame);
    } else if (damage >= 0xD8) {
      frame.resize(input_.Number() % (frame.size() + 1));
    }
    return frame;
  }

  std::string Hello() { return Encode(HelloFrame{kProtocolVersion, kSource, kSink}); }

 private:
  std::string Valid() {
    const uint32_t transfer = input_.Below(kTransfers);
    const AttemptId attempt = TestAttempt(transfer + 1);
    switch (input_.Below(8)) {
      case 0:
        return Hello();
      case 1:
        return Encode(OpenFrame{attempt, SecretOf(transfer)});
      case 2:
        return Encode(CommitFrame{attempt, {{1, 2}, std::string(input_.ShortText())}});
      case 3:
        return EncodeClose(attempt);
      case 4:
        return AllPieces(attempt, transfer == 1 ? 1 : 0);
      case 5:
        return Encode(CreditFrame{attempt, input_.Number()});
      default:
        return Piece(AnyHeader(attempt));
    }
  }

  // The header of a whole piece, some of its numbers replaced.
  PieceHeader AnyHeader(const AttemptId& attempt) {
    PieceHeader header{attempt, kSource, kSink};
    header.layer = input_.Below(static_cast<uint32_t>(layout_.layers.size()));
    header.group = layout_.layers[header.layer].group;
    header.arena = input_.Below(2);
    header.ordinal = input_.Below(3);
    if (header.arena < layout_.layers[header.layer].arenas.size()) {
      header.length = static_cast<uint32_t>(layout_.PieceBytes(header.layer, header.arena)) *
                      (1 + input_.Below(2));
    }
    const uint8_t change = input_.Byte();
    if (change < 0xC0) return header;
    for (uint32_t* number : {&header.layer, &header.group, &header.arena, &header.shard,
                             &header.ordinal, &header.offset, &header.length}) {
      if (input_.Below(4) == 0) *number = input_.Number();
    }
    if (change >= 0xF0) header.source_epoch.lo = input_.Byte();
    return header;
  }

  std::string AllPieces(const AttemptId& attempt, uint32_t first) {
    std::string frames;
    for (uint32_t layer = 0; layer < layout_.layers.size(); ++layer) {
      for (uint32_t arena = 0; arena < layout_.layers[layer].arenas.size(); ++arena) {
        PieceHeader header{attempt, kSource, kSink};
        header.layer = layer;
        header.group = layout_.layers[layer].group;
        header.arena = arena;
        header.ordinal = first;
        header.length = static_cast<uint32_t>(layout_.PieceBytes(layer, arena)) * (2 - first);
        frames += Piece(header);
      }
    }
    return frames;
  }

  // Its payload is as long as the header says, within reason.
  std::string Piece(const PieceHeader& header) {
    std::string frame = EncodePieceHead(header);
    frame.append(std::min<size_t>(header.length, size_t{16} << 10),
                 static_cast<char>(input_.Byte()));
    return frame + EncodeTrailer(Crc32c(AsBytes(frame)));
  }

  static void Reseal(std::string& frame) {
    if (frame.size() < kTrailerBytes) return;
    frame.resize(frame.size() - kTrailerBytes);
    frame += EncodeTrailer(Crc32c(AsBytes(frame)));
  }

  const kv::KvLayout& layout_;
  FuzzInput& input_;
};

void SendFrames(World& world, FuzzInput& input) {
  FrameMaker maker(world.layout(), input);
  for (uint32_t c = 0; c < kConnections; ++c) world.Feed(c, maker.Hello());
  while (!input.empty()) {
    const uint32_t connection = input.Below(kConnections);
    switch (input.Below(16)) {
      case 0:
        world.Drop(input.Below(kTransfers));
        break;
      case 1:
        world.RunEvents();
        break;
      case 2:
        world.Disconnect(connection);
        break;
      case 3:
        if (input.Byte() == 0xFF) world.ForgetSource();
        break;
      case 4: {  // twice
        const std::string frame = maker.Next();
        world.Feed(connection, frame);
        world.Feed(connection, frame);
        break;
      }
      case 5: {  // in two parts, with something between
        const std::string frame = maker.Next();
        const size_t cut = input.Number() % (frame.size() + 1);
        world.Feed(connection, std::string_view(frame).substr(0, cut));
        if (input.Below(2) == 0) world.Drop(input.Below(kTransfers));
        world.RunEvents();
        world.Feed(connection, std::string_view(frame).substr(cut));
        break;
      }
      default:
        world.Feed(connection, maker.Next());
    }
  }
}

void SendBytes(World& world, FuzzInput& input) {
  const size_t step = 1 + size_t{input.Byte()} * 16;
  while (!input.empty()) world.Feed(0, input.Take(step));
}

}  // namespace
}  // namespace baton::kvtransfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton::kvtransfer;
  baton::FuzzInput input(data, size);
  const uint8_t kind = input.Byte();
  World world(/*sockets=*/(kind & 1) != 0);
  if ((kind & 2) != 0) {
    SendFrames(world, input);
  } else {
    SendBytes(world, input);
  }
  world.CheckAndEnd();
  return 0;
}
