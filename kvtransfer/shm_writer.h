// Writes frames that name blocks in the source's shared arena instead of carrying them.
#ifndef BATON_KVTRANSFER_SHM_WRITER_H_
#define BATON_KVTRANSFER_SHM_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "kv/arena.h"
#include "kvtransfer/generation_table.h"
#include "kvtransfer/send_queue.h"
#include "kvtransfer/socket.h"
#include "kvtransfer/socket_source.h"

namespace baton::kvtransfer {

// Slots of a generation table: 64 Ki transfers of one connection at a time.
inline constexpr uint32_t kGenerationSlots = uint32_t{1} << 16;

// Generations of one connection's transfers in a memfd that the sink maps. Thread-safe.
class ShmGenerations : public GenerationTable {
 public:
  static absl::StatusOr<std::unique_ptr<ShmGenerations>> Create();
  ~ShmGenerations() override;
  ShmGenerations(const ShmGenerations&) = delete;
  ShmGenerations& operator=(const ShmGenerations&) = delete;

  std::optional<Slot> Take() override;
  void Retire(uint32_t index) override;
  int fd() const { return fd_.get(); }

 private:
  ShmGenerations(UniqueFd fd, uint64_t* slots) : fd_(std::move(fd)), slots_(slots) {}

  const UniqueFd fd_;
  uint64_t* const slots_;
  Mutex mutex_;
  std::vector<uint32_t> free_ BATON_GUARDED_BY(mutex_);
  uint32_t never_used_ BATON_GUARDED_BY(mutex_) = 0;
};

class ShmWriter : public FrameWriter {
 public:
  // Both must outlive this object; the arena is shareable.
  ShmWriter(const kv::KvArena& arena, const ShmGenerations& generations);

  absl::Status Start(SendQueue& queue) override;
  absl::StatusOr<bool> WriteSome(int socket, SendQueue& queue) override;

 private:
  // The frame to send, or empty when its transfer was closed.
  static std::string Reference(const OutFrame& frame, SendQueue& queue);
  void Fill(SendQueue& queue);
  // Sends hello and arena together with the two descriptors.
  absl::StatusOr<bool> SendStart(int socket);

  const kv::KvArena& arena_;
  const ShmGenerations& generations_;
  bool started_ = false;  // the descriptors are on their way
  std::string outgoing_;
  size_t sent_ = 0;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SHM_WRITER_H_
