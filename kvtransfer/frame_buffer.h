// Cuts a byte stream into whole frames and checks their CRC. For everything that is not the payload
// of a piece on tcp.
#ifndef BATON_KVTRANSFER_FRAME_BUFFER_H_
#define BATON_KVTRANSFER_FRAME_BUFFER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kvtransfer/frame.h"

namespace baton::kvtransfer {

// Thread-compatible.
class FrameBuffer {
 public:
  struct Whole {
    FrameType type{};
    std::string_view body;  // valid until the next call
    // Of a piece, whose damage costs only its transfer; any other damaged frame is an error.
    bool intact = true;
    bool given_up = false;  // GivenUpTrailer
  };

  void Append(std::string_view bytes);

  // The next whole frame, or nothing yet. INVALID_ARGUMENT: the stream is not frames; DATA_LOSS: a
  // CRC is wrong. After an error the stream is useless. `max_body`: what may come now.
  absl::StatusOr<std::optional<Whole>> Next(uint32_t max_body = kMaxBodyBytes);

 private:
  std::string bytes_;
  size_t begin_ = 0;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_FRAME_BUFFER_H_
