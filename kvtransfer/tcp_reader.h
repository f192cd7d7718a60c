// Reads frames from a socket; the payload of pieces goes straight into the granted blocks.
#ifndef BATON_KVTRANSFER_TCP_READER_H_
#define BATON_KVTRANSFER_TCP_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/receive_connection.h"
#include "kvtransfer/socket_sink.h"

namespace baton::kvtransfer {

class TcpReader : public FrameReader {
 public:
  absl::StatusOr<bool> ReadSome(int socket, ReceiveConnection& connection) override;

 private:
  // A piece whose head has come.
  struct Piece {
    Landing landing;
    uint32_t head_crc = 0;
    uint32_t crc = 0;   // of head and payload so far
    size_t target = 0;  // where the next byte goes: index into landing.targets()
    size_t offset = 0;  // and place within it
    uint32_t left = 0;  // payload bytes still to come
    bool discarded = false;
  };

  // Each does one step; false: the socket has no more at the moment.
  absl::StatusOr<bool> Step(int socket, ReceiveConnection& connection);
  absl::StatusOr<bool> ReadPayload(int socket, ReceiveConnection& connection);
  absl::StatusOr<bool> Discard(int socket);
  absl::StatusOr<bool> More(int socket, size_t bytes);
  absl::Status BeginPiece(ReceiveConnection& connection, uint32_t body_bytes);
  void EndPiece(ReceiveConnection& connection);
  void Landed(size_t bytes);

  std::string bytes_;  // everything but payload that is not handled yet
  std::optional<Piece> piece_;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_TCP_READER_H_
