#include "kvtransfer/shm_transport.h"

#include <utility>

#include "common/random.h"
#include "common/status_macros.h"
#include "kvtransfer/receive_table.h"
#include "kvtransfer/shm_reader.h"
#include "kvtransfer/shm_writer.h"
#include "kvtransfer/socket_sink.h"
#include "kvtransfer/socket_source.h"

namespace baton::kvtransfer {
namespace {

constexpr std::string_view kPrefix = "shm:";

// A connection with its generation table, which the queue and the writer use until the last.
class ShmConnection : public DataConnection {
 public:
  ShmConnection(std::unique_ptr<ShmGenerations> generations,
                std::unique_ptr<SocketSource> connection)
      : generations_(std::move(generations)), connection_(std::move(connection)) {}

  void Open(const AttemptId& attempt, uint64_t secret) override {
    connection_->Open(attempt, secret);
  }
  void Send(const AttemptId& attempt, const BlockRun& run) override {
    connection_->Send(attempt, run);
  }
  void Commit(const AttemptId& attempt, CommitMessage message) override {
    connection_->Commit(attempt, std::move(message));
  }
  void Close(const AttemptId& attempt) override { connection_->Close(attempt); }
  uint64_t Backlog(const AttemptId& attempt) const override {
    return connection_->Backlog(attempt);
  }

 private:
  const std::unique_ptr<ShmGenerations> generations_;
  const std::unique_ptr<SocketSource> connection_;
};

}  // namespace

ShmTransport::ShmTransport(Options options, Executor& executor, kv::KvArena* arena)
    : options_(options), executor_(executor), arena_(arena) {}

std::unique_ptr<DataConnection> ShmTransport::Connect(const ConnectRequest& request,
                                                      DataConnection::Listener& listener) {
  SendQueue::Params params;
  params.request = request;
  params.arena = arena_;
  params.executor = &executor_;
  params.listener = &listener;
  absl::Status problem;
  if (arena_ == nullptr || arena_->fd() < 0) {
    problem = absl::FailedPreconditionError("the arena is not shareable");
  }
  auto made = ShmGenerations::Create();
  if (!made.ok()) problem = made.status();
  std::unique_ptr<ShmGenerations> generations = made.ok() ? *std::move(made) : nullptr;
  params.generations = generations.get();
  auto dial = [address = request.address, problem]() -> absl::StatusOr<UniqueFd> {
    BATON_RETURN_IF_ERROR(problem);
    if (address.rfind(kPrefix, 0) != 0) return absl::InvalidArgumentError("not a shm address");
    return ConnectUnix(std::string_view(address).substr(kPrefix.size()));
  };
  std::unique_ptr<FrameWriter> writer;
  if (problem.ok()) writer = std::make_unique<ShmWriter>(*arena_, *generations);
  auto connection =
      std::make_unique<SocketSource>(std::move(params), std::move(dial), std::move(writer));
  return std::make_unique<ShmConnection>(std::move(generations), std::move(connection));
}

absl::StatusOr<std::unique_ptr<DataListener>> ShmTransport::Listen(ReceiveTable& table) {
  OsRandom random;
  const std::string name = "baton-" + NewEpoch(random).ToString();
  SocketListener::Params params;
  BATON_ASSIGN_OR_RETURN(params.socket, ListenUnix(name));
  params.address = std::string(kPrefix) + name;
  params.max_connections = options_.max_connections;
  params.admit = CheckPeerUser;
  if (helper_ == nullptr) helper_ = std::make_unique<CopyHelper>();
  params.make_reader = [&layout = table.layout(), &helper = *helper_] {
    return std::make_unique<ShmReader>(layout, helper);
  };
  return std::make_unique<SocketListener>(std::move(params), table);
}

}  // namespace baton::kvtransfer
