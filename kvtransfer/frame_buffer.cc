#include "kvtransfer/frame_buffer.h"

#include "common/crc32c.h"
#include "common/status_macros.h"

namespace baton::kvtransfer {

void FrameBuffer::Append(std::string_view bytes) {
  if (begin_ > 0) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  bytes_.append(bytes);
}

absl::StatusOr<std::optional<FrameBuffer::Whole>> FrameBuffer::Next(uint32_t max_body) {
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (rest.size() < kPreludeBytes) return std::nullopt;
  BATON_ASSIGN_OR_RETURN(const Prelude prelude, DecodePrelude(rest));
  if (prelude.body_bytes > max_body) return absl::InvalidArgumentError("frame too long");
  const size_t covered = kPreludeBytes + prelude.body_bytes;
  if (rest.size() < covered + kTrailerBytes) return std::nullopt;
  const uint32_t trailer = DecodeTrailer(rest.substr(covered));
  Whole whole{prelude.type, rest.substr(kPreludeBytes, prelude.body_bytes), true, false};
  whole.intact = Crc32c(AsBytes(rest.substr(0, covered))) == trailer;
  if (!whole.intact) {
    if (prelude.type != FrameType::kPiece) return absl::DataLossError("CRC of a frame is wrong");
    whole.given_up = GivenUpTrailer(Crc32c(AsBytes(rest.substr(0, kPieceHeadBytes)))) == trailer;
  }
  begin_ += covered + kTrailerBytes;
  return whole;
}

}  // namespace baton::kvtransfer
