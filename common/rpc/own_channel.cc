#include "common/rpc/own_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/security/credentials.h>

#include <utility>

#include "common/tcp.h"

namespace baton::rpc {
namespace {

std::shared_ptr<grpc::Channel> ChannelOfName(const std::string& address,
                                             grpc::ChannelArguments arguments) {
  // Whoever opens the stream again has its own backoff; the channel must not wait longer than that.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

std::shared_ptr<grpc::Channel> OwnChannel(const std::string& address,
                                          const grpc::ChannelArguments& arguments) {
  absl::StatusOr<UniqueFd> socket = StartConnectTcp(address);
  if (!socket.ok() || !SetTcpOptions(socket->get()).ok()) return ChannelOfName(address, arguments);
  return grpc::CreateCustomInsecureChannelFromFd(address, socket->Release(), arguments);
}

}  // namespace baton::rpc
