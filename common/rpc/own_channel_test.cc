#include "common/rpc/own_channel.h"

#include <arpa/inet.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <future>
#include <memory>
#include <string>

#include "common/tcp.h"

namespace baton::rpc {
namespace {

// A peer that takes connections and says nothing by itself; or an address that nobody else gets.
class Listener {
 public:
  explicit Listener(bool listens = true) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    EXPECT_EQ(bind(socket_.get(), Address(), size), 0);
    if (listens) {
      EXPECT_EQ(listen(socket_.get(), 8), 0);
    }
    EXPECT_EQ(getsockname(socket_.get(), Address(), &size), 0);
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(ntohs(address_.sin_port)); }
  UniqueFd Accept() { return UniqueFd(accept(socket_.get(), nullptr, nullptr)); }

 private:
  sockaddr* Address() { return reinterpret_cast<sockaddr*>(&address_); }

  UniqueFd socket_;
  sockaddr_in address_{};
};

// A channel with one call on it.
class Call {
 public:
  explicit Call(const std::string& address)
      : channel_(OwnChannel(address, grpc::ChannelArguments())),
        stub_(std::make_unique<grpc::GenericStub>(channel_)),
        context_(std::make_unique<grpc::ClientContext>()) {
    stub_->UnaryCall(context_.get(), "/service/Method", {}, &request_, &response_,
                     [ended = ended_](const grpc::Status& status) { ended->set_value(status); });
  }

  void Cancel() { context_->TryCancel(); }
  grpc::Status AwaitEnd() { return ended_->get_future().get(); }
  // After the end.
  void DropChannel() {
    context_.reset();  // holds the channel as well
    stub_.reset();
    channel_.reset();
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::GenericStub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  const grpc::Slice nothing_;
  grpc::ByteBuffer request_{&nothing_, 1};
  grpc::ByteBuffer response_;
  // gRPC's thread may be in set_value still when this object dies.
  const std::shared_ptr<std::promise<grpc::Status>> ended_ =
      std::make_shared<std::promise<grpc::Status>>();
};

void ReadToEnd(const UniqueFd& connection) {
  char bytes[4096];
  while (recv(connection.get(), bytes, sizeof bytes, 0) > 0) {
  }
}

// gRPC's own connections stay open here for ever.
TEST(OwnChannelTest, TheConnectionIsClosedWithItsChannelThoughThePeerNeverSpoke) {
  Listener peer;
  for (int round = 0; round < 5; ++round) {
    Call call(peer.address());
    const UniqueFd connection = peer.Accept();
    ASSERT_TRUE(connection.valid());
    call.Cancel();
    EXPECT_EQ(call.AwaitEnd().error_code(), grpc::StatusCode::CANCELLED);
    call.DropChannel();
    ReadToEnd(connection);
  }
}

TEST(OwnChannelTest, ACallFailsAsUnavailableWhenNobodyListens) {
  const Listener nobody(/*listens=*/false);
  Call call(nobody.address());
  EXPECT_EQ(call.AwaitEnd().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(OwnChannelTest, ACallFailsAsUnavailableWhenThePeerCloses) {
  Listener peer;
  Call call(peer.address());
  peer.Accept();
  EXPECT_EQ(call.AwaitEnd().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace baton::rpc
