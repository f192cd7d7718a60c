// Writes frames with their payload onto a socket, straight from the blocks, many per call.
#ifndef BATON_KVTRANSFER_TCP_WRITER_H_
#define BATON_KVTRANSFER_TCP_WRITER_H_

#include <sys/uio.h>

#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/send_queue.h"
#include "kvtransfer/socket_source.h"

namespace baton::kvtransfer {

class TcpWriter : public FrameWriter {
 public:
  absl::Status Start(SendQueue& queue) override;
  absl::StatusOr<bool> WriteSome(int socket, SendQueue& queue) override;

 private:
  struct Pending {
    OutFrame frame;
    std::string trailer;
    std::vector<iovec> parts;
    size_t first = 0;  // of the parts that are left
    size_t bytes = 0;  // left
    bool started = false;
    bool given_up = false;
  };

  void Fill(SendQueue& queue);
  void Add(OutFrame frame, SendQueue& queue);
  static void GiveUp(Pending& pending);
  // Enters every piece of the batch; drops or gives up those of closed transfers.
  void EnterAll(SendQueue& queue);
  void LeaveAll(SendQueue& queue);
  void Advance(size_t sent);

  std::list<Pending> batch_;  // parts point into frames: they never move
  std::vector<const OutFrame*> entered_;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_TCP_WRITER_H_
