#include "kvtransfer/frame.h"

#include <utility>

#include "common/checked.h"
#include "common/crc32c.h"
#include "common/status_macros.h"

namespace baton::kvtransfer {
namespace {

class Writer {
 public:
  explicit Writer(FrameType type) {
    U32(kFrameMagic);
    U32(static_cast<uint32_t>(type));
    U32(0);  // body length, set by SetBodyBytes
  }

  void U32(uint32_t value) {
    const char bytes[4] = {static_cast<char>(value), static_cast<char>(value >> 8),
                           static_cast<char>(value >> 16), static_cast<char>(value >> 24)};
    bytes_.append(bytes, sizeof bytes);
  }
  void U64(uint64_t value) {
    U32(static_cast<uint32_t>(value));
    U32(static_cast<uint32_t>(value >> 32));
  }
  void Id(const Epoch& epoch) {
    U64(epoch.hi);
    U64(epoch.lo);
  }
  void Id(const AttemptId& attempt) {
    Id(attempt.router);
    U64(attempt.request);
    U32(attempt.attempt);
  }
  void Raw(std::string_view bytes) { bytes_.append(bytes); }
  void Header(const PieceHeader& header);

  std::string FinishHead(uint32_t body_bytes) && {
    SetBodyBytes(body_bytes);
    return std::move(bytes_);
  }

  std::string Finish() && {
    SetBodyBytes(static_cast<uint32_t>(bytes_.size() - kPreludeBytes));
    U32(Crc32c(AsBytes(bytes_)));
    return std::move(bytes_);
  }

 private:
  void SetBodyBytes(uint32_t n) {
    for (int i = 0; i < 4; ++i) bytes_[8 + i] = static_cast<char>(n >> (8 * i));
  }

  std::string bytes_;
};

void Writer::Header(const PieceHeader& header) {
  Id(header.attempt);
  Id(header.source_epoch);
  Id(header.sink_epoch);
  for (uint32_t value : {header.layer, header.group, header.arena, header.shard, header.ordinal,
                         header.offset, header.length}) {
    U32(value);
  }
}

// Reads past the end give zeros and make Done() fail.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  uint32_t U32() {
    if (bytes_.size() < 4) {
      short_ = true;
      bytes_ = {};
      return 0;
    }
    uint32_t value = 0;
    for (int i = 3; i >= 0; --i) value = (value << 8) | static_cast<uint8_t>(bytes_[i]);
    bytes_.remove_prefix(4);
    return value;
  }
  uint64_t U64() {
    const uint64_t low = U32();
    return low | uint64_t{U32()} << 32;
  }
  Epoch ReadEpoch() {
    Epoch epoch;
    epoch.hi = U64();
    epoch.lo = U64();
    return epoch;
  }
  AttemptId Attempt() {
    AttemptId attempt;
    attempt.router = ReadEpoch();
    attempt.request = U64();
    attempt.attempt = U32();
    return attempt;
  }
  PieceHeader Header();
  std::string_view Rest() { return std::exchange(bytes_, {}); }
  size_t left() const { return bytes_.size(); }

  absl::Status Done(std::string_view what) const {
    if (!short_ && bytes_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("wrong size of a " + std::string(what) + " frame");
  }

 private:
  std::string_view bytes_;
  bool short_ = false;
};

PieceHeader Reader::Header() {
  PieceHeader header;
  header.attempt = Attempt();
  header.source_epoch = ReadEpoch();
  header.sink_epoch = ReadEpoch();
  for (uint32_t* value : {&header.layer, &header.group, &header.arena, &header.shard,
                          &header.ordinal, &header.offset, &header.length}) {
    *value = U32();
  }
  return header;
}

constexpr uint32_t kAttemptBytes = 28;

struct BodyRange {
  uint32_t least = 1;
  uint32_t most = 0;  // below `least`: there is no such type
};

// One size where there is one: a reader would wait for the rest of a frame whose damaged length
// has grown, and a source for a reply until its lease.
BodyRange BodyOf(FrameType type) {
  switch (type) {
    case FrameType::kHello:
    case FrameType::kOpen:
    case FrameType::kCredit:
      return {36, 36};
    case FrameType::kClose:
      return {kAttemptBytes, kAttemptBytes};
    case FrameType::kCommitReply:
      return {kAttemptBytes + 4, kAttemptBytes + 4};
    case FrameType::kPiece:
      return {kPieceHeaderBytes, kPieceHeaderBytes + kMaxPieceBytes};
    case FrameType::kCommit:
      return {kAttemptBytes, kMaxBodyBytes};
    case FrameType::kShmArena:
      return {0, uint32_t{1} << 20};
    case FrameType::kPieceRef:
      return {kPieceHeaderBytes, kPieceHeaderBytes + 16 + 4 * kMaxBlocksPerFrame};
  }
  return {};
}

}  // namespace

std::string Encode(const HelloFrame& frame) {
  Writer writer(FrameType::kHello);
  writer.U32(frame.protocol_version);
  writer.Id(frame.source_epoch);
  writer.Id(frame.sink_epoch);
  return std::move(writer).Finish();
}

std::string Encode(const OpenFrame& frame) {
  Writer writer(FrameType::kOpen);
  writer.Id(frame.attempt);
  writer.U64(frame.secret);
  return std::move(writer).Finish();
}

std::string Encode(const CommitFrame& frame) {
  Writer writer(FrameType::kCommit);
  writer.Id(frame.attempt);
  writer.U64(frame.message.chain_hash.hi);
  writer.U64(frame.message.chain_hash.lo);
  writer.Raw(frame.message.decoder_state);
  return std::move(writer).Finish();
}

std::string EncodeClose(const AttemptId& attempt) {
  Writer writer(FrameType::kClose);
  writer.Id(attempt);
  return std::move(writer).Finish();
}

std::string Encode(const CommitReplyFrame& frame) {
  Writer writer(FrameType::kCommitReply);
  writer.Id(frame.attempt);
  writer.U32(frame.cause);
  return std::move(writer).Finish();
}

std::string Encode(const CreditFrame& frame) {
  Writer writer(FrameType::kCredit);
  writer.Id(frame.attempt);
  writer.U64(frame.bytes);
  return std::move(writer).Finish();
}

std::string Encode(const ShmArenaFrame& frame) {
  Writer writer(FrameType::kShmArena);
  writer.U32(frame.layers);
  writer.U32(frame.arenas);
  for (const ShmRegion& region : frame.regions) {
    writer.U64(region.offset);
    writer.U64(region.bytes);
  }
  return std::move(writer).Finish();
}

std::string Encode(const PieceRefFrame& frame) {
  Writer writer(FrameType::kPieceRef);
  writer.Header(frame.header);
  writer.U32(frame.crc);
  writer.U32(frame.generation_slot);
  writer.U64(frame.generation);
  for (uint32_t block : frame.blocks) writer.U32(block);
  return std::move(writer).Finish();
}

std::string EncodePieceHead(const PieceHeader& header) {
  Writer writer(FrameType::kPiece);
  writer.Header(header);
  return std::move(writer).FinishHead(kPieceHeaderBytes + header.length);
}

std::string EncodeTrailer(uint32_t crc) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(crc >> shift));
  return bytes;
}

uint32_t DecodeTrailer(std::string_view bytes) { return Reader(bytes).U32(); }

absl::StatusOr<Prelude> DecodePrelude(std::string_view bytes) {
  Reader reader(bytes);
  if (reader.U32() != kFrameMagic) return absl::InvalidArgumentError("not a frame: wrong magic");
  const auto type = static_cast<FrameType>(reader.U32());
  const uint32_t body_bytes = reader.U32();
  const BodyRange range = BodyOf(type);
  if (range.most < range.least) return absl::InvalidArgumentError("unknown frame type");
  if (body_bytes > range.most || body_bytes < range.least) {
    return absl::InvalidArgumentError("frame length out of range");
  }
  return Prelude{type, body_bytes};
}

PieceHeader DecodePieceHeader(std::string_view bytes) { return Reader(bytes).Header(); }

absl::StatusOr<HelloFrame> DecodeHello(std::string_view body) {
  Reader reader(body);
  HelloFrame frame;
  frame.protocol_version = reader.U32();
  frame.source_epoch = reader.ReadEpoch();
  frame.sink_epoch = reader.ReadEpoch();
  BATON_RETURN_IF_ERROR(reader.Done("hello"));
  return frame;
}

absl::StatusOr<OpenFrame> DecodeOpen(std::string_view body) {
  Reader reader(body);
  OpenFrame frame;
  frame.attempt = reader.Attempt();
  frame.secret = reader.U64();
  BATON_RETURN_IF_ERROR(reader.Done("open"));
  return frame;
}

absl::StatusOr<CommitFrame> DecodeCommit(std::string_view body) {
  Reader reader(body);
  CommitFrame frame;
  frame.attempt = reader.Attempt();
  frame.message.chain_hash.hi = reader.U64();
  frame.message.chain_hash.lo = reader.U64();
  frame.message.decoder_state = std::string(reader.Rest());
  BATON_RETURN_IF_ERROR(reader.Done("commit"));
  return frame;
}

absl::StatusOr<AttemptId> DecodeClose(std::string_view body) {
  Reader reader(body);
  const AttemptId attempt = reader.Attempt();
  BATON_RETURN_IF_ERROR(reader.Done("close"));
  return attempt;
}

absl::StatusOr<CommitReplyFrame> DecodeCommitReply(std::string_view body) {
  Reader reader(body);
  CommitReplyFrame frame;
  frame.attempt = reader.Attempt();
  frame.cause = reader.U32();
  BATON_RETURN_IF_ERROR(reader.Done("commit reply"));
  return frame;
}

absl::StatusOr<CreditFrame> DecodeCredit(std::string_view body) {
  Reader reader(body);
  CreditFrame frame;
  frame.attempt = reader.Attempt();
  frame.bytes = reader.U64();
  BATON_RETURN_IF_ERROR(reader.Done("credit"));
  return frame;
}

absl::StatusOr<ShmArenaFrame> DecodeShmArena(std::string_view body) {
  Reader reader(body);
  ShmArenaFrame frame;
  frame.layers = reader.U32();
  frame.arenas = reader.U32();
  const uint64_t count = uint64_t{frame.layers} * frame.arenas;
  if (reader.left() % 16 != 0 || reader.left() / 16 != count) {
    return absl::InvalidArgumentError("wrong number of regions");
  }
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t offset = reader.U64();
    frame.regions.push_back({offset, reader.U64()});
  }
  BATON_RETURN_IF_ERROR(reader.Done("arena"));
  return frame;
}

absl::StatusOr<PieceRefFrame> DecodePieceRef(std::string_view body) {
  Reader reader(body);
  PieceRefFrame frame;
  frame.header = reader.Header();
  frame.crc = reader.U32();
  frame.generation_slot = reader.U32();
  frame.generation = reader.U64();
  frame.blocks.reserve(reader.left() / 4);
  while (reader.left() >= 4) frame.blocks.push_back(reader.U32());
  BATON_RETURN_IF_ERROR(reader.Done("piece reference"));
  return frame;
}

}  // namespace baton::kvtransfer
