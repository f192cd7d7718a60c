#include "worker/grpc_sink_dialer.h"

#include <grpcpp/channel.h>

#include <utility>

#include "baton/transfer/v1/transfer.grpc.pb.h"
#include "common/rpc/grpc_stream.h"
#include "common/rpc/own_channel.h"

namespace baton::worker {
namespace {

using transfer::v1::SessionRequest;
using transfer::v1::SessionResponse;
using transfer::v1::TransferService;

constexpr int kMaxMessageBytes = 16 << 20;

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return rpc::OwnChannel(address, arguments);
}

}  // namespace

GrpcSinkDialer::~GrpcSinkDialer() {
  MutexLock lock(mutex_);
  while (open_ > 0) idle_.Wait(mutex_);
}

std::unique_ptr<kvtransfer::SourceStream> GrpcSinkDialer::Dial(
    const std::string& address, kvtransfer::SourceStream::Listener& listener) {
  {
    MutexLock lock(mutex_);
    ++open_;
  }
  // The stub keeps the channel; both live until gRPC is done with the call.
  std::shared_ptr<TransferService::Stub> stub = TransferService::NewStub(MakeChannel(address));
  return rpc::OpenStream<SessionRequest, SessionResponse>(
      executor_, &listener,
      [stub](auto* context, auto* reactor) { stub->async()->Session(context, reactor); },
      [this, stub] {
        MutexLock lock(mutex_);
        if (--open_ == 0) idle_.NotifyAll();
      });
}

}  // namespace baton::worker
