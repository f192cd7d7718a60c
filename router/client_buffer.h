// What waits for one client that reads slower than tokens come: bounded, and the deltas of each
// choice merged. A choice's messages stay in order; a merged delta stands where its first part was.
#ifndef BATON_ROUTER_CLIENT_BUFFER_H_
#define BATON_ROUTER_CLIENT_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "baton/v1/inference.pb.h"

namespace baton::router {

// Not thread-safe.
class ClientBuffer {
 public:
  explicit ClientBuffer(size_t max_bytes) : max_bytes_(max_bytes) {}

  // False, and nothing is kept of it, when the client is too far behind. A single message always
  // fits.
  [[nodiscard]] bool Add(v1::GenerateStreamResponse response);
  // The oldest message.
  std::optional<v1::GenerateStreamResponse> Take();

  // Gives up what waits.
  void Clear();

  bool empty() const { return waiting_.empty(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    v1::GenerateStreamResponse response;
    size_t bytes;
  };
  const size_t max_bytes_;
  std::deque<Entry> waiting_;
  std::map<uint32_t, Entry*> deltas_;  // the one that waits, by choice
  size_t bytes_ = 0;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_CLIENT_BUFFER_H_
