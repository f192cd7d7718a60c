#include "kvtransfer/tcp_transport.h"

#include <utility>

#include "common/status_macros.h"
#include "kvtransfer/socket_sink.h"
#include "kvtransfer/socket_source.h"
#include "kvtransfer/tcp_reader.h"
#include "kvtransfer/tcp_writer.h"

namespace baton::kvtransfer {
namespace {

constexpr std::string_view kPrefix = "tcp:";

}  // namespace

TcpTransport::TcpTransport(Options options, Executor& executor, kv::KvArena* arena)
    : options_(std::move(options)), executor_(executor), arena_(arena) {}

std::unique_ptr<DataConnection> TcpTransport::Connect(const ConnectRequest& request,
                                                      DataConnection::Listener& listener) {
  SendQueue::Params params;
  params.request = request;
  params.arena = arena_;
  params.executor = &executor_;
  params.listener = &listener;
  auto dial = [address = request.address]() -> absl::StatusOr<UniqueFd> {
    if (address.rfind(kPrefix, 0) != 0) return absl::InvalidArgumentError("not a tcp address");
    BATON_ASSIGN_OR_RETURN(UniqueFd socket,
                           StartConnectTcp(std::string_view(address).substr(kPrefix.size())));
    BATON_RETURN_IF_ERROR(SetTcpOptions(socket.get()));
    return socket;
  };
  return std::make_unique<SocketSource>(std::move(params), std::move(dial),
                                        std::make_unique<TcpWriter>());
}

absl::StatusOr<std::unique_ptr<DataListener>> TcpTransport::Listen(ReceiveTable& table) {
  const std::string& advertised =
      options_.advertise_host.empty() ? options_.listen_host : options_.advertise_host;
  BATON_ASSIGN_OR_RETURN(const std::string host, NumericHost(advertised));
  SocketListener::Params params;
  BATON_ASSIGN_OR_RETURN(params.socket, ListenTcp(options_.listen_host, options_.listen_port));
  BATON_ASSIGN_OR_RETURN(const uint16_t port, PortOf(params.socket.get()));
  const uint16_t told = options_.advertise_port == 0 ? port : options_.advertise_port;
  params.address = std::string(kPrefix) + host + ":" + std::to_string(told);
  params.port = port;
  params.max_connections = options_.max_connections;
  params.admit = SetTcpOptions;
  params.make_reader = [] { return std::make_unique<TcpReader>(); };
  return std::make_unique<SocketListener>(std::move(params), table);
}

}  // namespace baton::kvtransfer
