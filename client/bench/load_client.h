// Many streams at once on gRPC's own threads.
#ifndef BATON_CLIENT_BENCH_LOAD_CLIENT_H_
#define BATON_CLIENT_BENCH_LOAD_CLIENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.grpc.pb.h"
#include "client/bench/record.h"
#include "common/mutex.h"

namespace baton::client {

// Thread-safe. Destroy it only after every Start's `done` has been called.
class LoadClient {
 public:
  // So many connections, used in turn. `timeout`: each request's deadline.
  LoadClient(const std::string& target, size_t connections, std::optional<Duration> timeout);
  ~LoadClient();
  LoadClient(const LoadClient&) = delete;
  LoadClient& operator=(const LoadClient&) = delete;

  // Opens every connection. The named model, or the only one when `name` is empty; UNAVAILABLE when
  // there is none, NOT_FOUND when it is not served.
  absl::StatusOr<v1::Model> Connect(const std::string& name);

  // `record` has the plan's fields. `done` is called once, on a thread of gRPC.
  void Start(RequestRecord record, v1::GenerateStreamRequest request,
             std::function<void(RequestRecord)> done);

  // Ends every stream with CANCELLED.
  void CancelAll();

  // Received so far.
  uint64_t tokens() const { return tokens_.load(std::memory_order_relaxed); }

 private:
  class Stream;
  void Forget(Stream* stream);

  const std::optional<Duration> timeout_;
  std::vector<std::unique_ptr<v1::InferenceService::Stub>> stubs_;
  std::atomic<uint64_t> tokens_{0};
  Mutex mutex_;
  size_t next_stub_ BATON_GUARDED_BY(mutex_) = 0;
  std::set<Stream*> streams_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton::client

#endif  // BATON_CLIENT_BENCH_LOAD_CLIENT_H_
