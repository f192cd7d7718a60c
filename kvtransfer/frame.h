// The frames of a data connection, byte for byte as docs/wire_format.md says: a prelude of 12 bytes
// (magic, type, body length), the body, and the CRC-32C of both. Little-endian, no padding.
#ifndef BATON_KVTRANSFER_FRAME_H_
#define BATON_KVTRANSFER_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

inline constexpr uint32_t kFrameMagic = 0x31564b42;  // "BKV1"
inline constexpr size_t kPreludeBytes = 12;
inline constexpr size_t kTrailerBytes = 4;
inline constexpr size_t kPieceHeaderBytes = 88;
// What stands before the payload of a piece frame.
inline constexpr size_t kPieceHeadBytes = kPreludeBytes + kPieceHeaderBytes;
// Everything but pieces: a commit is the largest.
inline constexpr uint32_t kMaxBodyBytes = uint32_t{16} << 20;
// Blocks that one frame names or carries.
inline constexpr size_t kMaxBlocksPerFrame = 4096;

enum class FrameType : uint32_t {
  kHello = 1,        // source -> sink, first
  kOpen = 2,         // source -> sink
  kPiece = 3,        // source -> sink: header and payload
  kCommit = 4,       // source -> sink
  kClose = 5,        // source -> sink
  kCommitReply = 6,  // sink -> source
  kCredit = 7,       // sink -> source
  kShmArena = 8,     // source -> sink, after hello; two file descriptors come with it (shm)
  kPieceRef = 9,     // source -> sink: header and where the payload lies (shm)
};

struct Prelude {
  FrameType type{};
  uint32_t body_bytes = 0;
};

struct HelloFrame {
  uint32_t protocol_version = kProtocolVersion;
  Epoch source_epoch;
  Epoch sink_epoch;
  bool operator==(const HelloFrame&) const = default;
};

struct OpenFrame {
  AttemptId attempt;
  uint64_t secret = 0;
  bool operator==(const OpenFrame&) const = default;
};

// The bytes [offset, offset + length) of the sequence of blocks that begins with `ordinal`: a piece
// may run over several consecutive blocks.
struct PieceHeader {
  AttemptId attempt;
  Epoch source_epoch;
  Epoch sink_epoch;
  uint32_t layer = 0;
  uint32_t group = 0;
  uint32_t arena = 0;
  uint32_t shard = 0;
  uint32_t ordinal = 0;
  uint32_t offset = 0;
  uint32_t length = 0;
  bool operator==(const PieceHeader&) const = default;
};

struct CommitFrame {
  AttemptId attempt;
  CommitMessage message;
};

struct CommitReplyFrame {
  AttemptId attempt;
  uint32_t cause = 0;  // 0: committed
  bool operator==(const CommitReplyFrame&) const = default;
};

struct CreditFrame {
  AttemptId attempt;
  uint64_t bytes = 0;
  bool operator==(const CreditFrame&) const = default;
};

// Where (layer, arena) lies in the source's memory; layer-major.
struct ShmRegion {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const ShmRegion&) const = default;
};

struct ShmArenaFrame {
  uint32_t layers = 0;
  uint32_t arenas = 0;  // per layer; layers with fewer leave regions of 0 bytes
  std::vector<ShmRegion> regions;
  bool operator==(const ShmArenaFrame&) const = default;
};

struct PieceRefFrame {
  PieceHeader header;
  uint32_t crc = 0;              // the trailer that the same piece would have as a kPiece frame
  uint32_t generation_slot = 0;  // in the generation table
  uint64_t generation = 0;       // what must stand there before and after the copy
  std::vector<uint32_t> blocks;  // the source's, for ordinals from header.ordinal
  bool operator==(const PieceRefFrame&) const = default;
};

// Whole frames, trailer included.
std::string Encode(const HelloFrame& frame);
std::string Encode(const OpenFrame& frame);
std::string Encode(const CommitFrame& frame);
std::string EncodeClose(const AttemptId& attempt);
std::string Encode(const CommitReplyFrame& frame);
std::string Encode(const CreditFrame& frame);
std::string Encode(const ShmArenaFrame& frame);
std::string Encode(const PieceRefFrame& frame);

// Prelude and header of a piece frame: kPieceHeadBytes. Payload and trailer follow.
std::string EncodePieceHead(const PieceHeader& header);
std::string EncodeTrailer(uint32_t crc);
uint32_t DecodeTrailer(std::string_view bytes);
// A sender that gives a piece up after its head is on the wire fills it up with anything and ends
// it with this instead of the CRC.
inline uint32_t GivenUpTrailer(uint32_t crc_of_head) { return ~crc_of_head; }

// Of the first kPreludeBytes of a frame. INVALID_ARGUMENT: magic, type or length is impossible.
absl::StatusOr<Prelude> DecodePrelude(std::string_view bytes);
// Of a piece frame's body.
PieceHeader DecodePieceHeader(std::string_view bytes);

// Of whole bodies. INVALID_ARGUMENT when the size or a count is wrong.
absl::StatusOr<HelloFrame> DecodeHello(std::string_view body);
absl::StatusOr<OpenFrame> DecodeOpen(std::string_view body);
absl::StatusOr<CommitFrame> DecodeCommit(std::string_view body);
absl::StatusOr<AttemptId> DecodeClose(std::string_view body);
absl::StatusOr<CommitReplyFrame> DecodeCommitReply(std::string_view body);
absl::StatusOr<CreditFrame> DecodeCredit(std::string_view body);
absl::StatusOr<ShmArenaFrame> DecodeShmArena(std::string_view body);
absl::StatusOr<PieceRefFrame> DecodePieceRef(std::string_view body);

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_FRAME_H_
