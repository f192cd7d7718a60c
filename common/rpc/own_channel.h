// A channel over one TCP connection of its own, which is never replaced by another one: for a
// stream that is a session, whose loss is the loss of its peer.
#ifndef BATON_COMMON_RPC_OWN_CHANNEL_H_
#define BATON_COMMON_RPC_OWN_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

namespace baton::rpc {

// Begins to connect to `address` ("HOST:PORT") and returns at once; calls wait for the connection
// and fail as UNAVAILABLE with it. The connection is closed with the channel, whatever the peer
// does.
//
// We connect, not gRPC: gRPC 1.51 forgets the socket of a connection whose peer answers only after
// its time to connect has passed (https://github.com/grpc/grpc/pull/32071), so a peer that stands
// still would cost both sides a descriptor for every attempt. Left to gRPC is a HOST that is a
// name, because resolving may take long, and what fails at once (e.g. refused), for its error.
std::shared_ptr<grpc::Channel> OwnChannel(const std::string& address,
                                          const grpc::ChannelArguments& arguments);

}  // namespace baton::rpc

#endif  // BATON_COMMON_RPC_OWN_CHANNEL_H_
