// Opens control sessions to sinks over gRPC.
#ifndef BATON_WORKER_GRPC_SINK_DIALER_H_
#define BATON_WORKER_GRPC_SINK_DIALER_H_

#include <cstddef>
#include <memory>
#include <string>

#include "common/executor.h"
#include "common/mutex.h"
#include "kvtransfer/source.h"

namespace baton::worker {

// One channel per session, so that a sink that comes back is dialled at once. Dial on the
// executor's thread; destroy on another one, when every stream has been dropped and while the
// executor still runs: the destructor waits until gRPC is done with them.
class GrpcSinkDialer : public kvtransfer::SinkDialer {
 public:
  // `executor` must outlive this object.
  explicit GrpcSinkDialer(Executor& executor) : executor_(executor) {}
  ~GrpcSinkDialer() override;

  std::unique_ptr<kvtransfer::SourceStream> Dial(
      const std::string& address, kvtransfer::SourceStream::Listener& listener) override;

 private:
  Executor& executor_;
  Mutex mutex_;
  CondVar idle_;
  size_t open_ BATON_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton::worker

#endif  // BATON_WORKER_GRPC_SINK_DIALER_H_
