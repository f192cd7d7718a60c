// The gRPC stream adapter against a real server on loopback: order, ends from either side, a peer
// that disappears.
#include "common/rpc/grpc_stream.h"

#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baton/worker/v1/worker.grpc.pb.h"
#include "common/event_loop.h"

namespace baton {
namespace {

namespace pb = worker::v1;
using ServerStream = Stream<pb::SessionResponse, pb::SessionRequest>;
using ClientStream = Stream<pb::SessionRequest, pb::SessionResponse>;

pb::SessionRequest Hello(uint64_t number) {
  pb::SessionRequest request;
  request.mutable_hello()->set_session_number(number);
  return request;
}

// Echoes every hello's number; ends the stream at number 0.
class Echo : public ServerStream::Listener {
 public:
  ServerStream::Listener* Accept(std::unique_ptr<ServerStream> stream) {
    stream_ = std::move(stream);
    return this;
  }
  void OnMessage(pb::SessionRequest message) override {
    if (message.hello().session_number() == 0) {
      return stream_->Close(absl::FailedPreconditionError("STALE_EPOCH"));
    }
    pb::SessionResponse response;
    response.add_events()->mutable_hello()->set_session_number(message.hello().session_number());
    stream_->Send(std::move(response));
  }
  void OnClosed(absl::Status status) override { closed_.set_value(std::move(status)); }

  std::future<absl::Status> Closed() { return closed_.get_future(); }

 private:
  std::unique_ptr<ServerStream> stream_;
  std::promise<absl::Status> closed_;
};

class Service : public pb::WorkerService::CallbackService {
 public:
  Service(Executor& executor, Echo& echo) : executor_(executor), echo_(echo) {}
  grpc::ServerBidiReactor<pb::SessionRequest, pb::SessionResponse>* Session(
      grpc::CallbackServerContext* context) override {
    return rpc::ServeStream<pb::SessionResponse, pb::SessionRequest>(
        context, executor_,
        [this](std::unique_ptr<ServerStream> stream) { return echo_.Accept(std::move(stream)); });
  }

 private:
  Executor& executor_;
  Echo& echo_;
};

class Collector : public ClientStream::Listener {
 public:
  explicit Collector(size_t expected) : expected_(expected) {}
  void OnMessage(pb::SessionResponse message) override {
    for (const pb::WorkerEvent& event : message.events()) {
      numbers_.push_back(event.hello().session_number());
    }
    if (numbers_.size() == expected_) all_.set_value(numbers_);
  }
  void OnClosed(absl::Status status) override { closed_.set_value(std::move(status)); }

  std::future<std::vector<uint64_t>> All() { return all_.get_future(); }
  std::future<absl::Status> Closed() { return closed_.get_future(); }

 private:
  const size_t expected_;
  std::vector<uint64_t> numbers_;
  std::promise<std::vector<uint64_t>> all_;
  std::promise<absl::Status> closed_;
};

class GrpcStreamTest : public testing::Test {
 protected:
  GrpcStreamTest() : loop_({}), service_(loop_, echo_) {
    loop_.Start();
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials());
    stub_ = pb::WorkerService::NewStub(channel_);
  }
  ~GrpcStreamTest() override {
    OnLoop([this] { client_.reset(); });
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    if (opened_) done_.get_future().wait();
    loop_.Stop();
  }

  void OnLoop(std::function<void()> task) {
    std::promise<void> ran;
    loop_.Post([&] {
      task();
      ran.set_value();
    });
    ran.get_future().wait();
  }

  void Open(Collector& collector) {
    opened_ = true;
    OnLoop([&] {
      client_ = rpc::OpenStream<pb::SessionRequest, pb::SessionResponse>(
          loop_, &collector,
          [this](auto* context, auto* reactor) { stub_->async()->Session(context, reactor); },
          [this] { done_.set_value(); });
    });
  }

  EventLoop loop_;
  Echo echo_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<pb::WorkerService::Stub> stub_;
  std::unique_ptr<ClientStream> client_;
  bool opened_ = false;
  std::promise<void> done_;
};

TEST_F(GrpcStreamTest, MessagesArriveInOrder) {
  Collector collector(1000);
  Open(collector);
  OnLoop([&] {
    for (uint64_t i = 1; i <= 1000; ++i) client_->Send(Hello(i));
  });
  const std::vector<uint64_t> numbers = collector.All().get();
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(numbers[i], i + 1);
}

TEST_F(GrpcStreamTest, ServersCloseCarriesItsStatusAfterWhatWasSent) {
  Collector collector(2);
  Open(collector);
  OnLoop([&] {
    client_->Send(Hello(7));
    client_->Send(Hello(8));
    client_->Send(Hello(0));
  });
  EXPECT_EQ(collector.All().get(), (std::vector<uint64_t>{7, 8}));
  const absl::Status status = collector.Closed().get();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "STALE_EPOCH");
}

TEST_F(GrpcStreamTest, ClientsCloseReachesTheServerAsOk) {
  Collector collector(1);
  Open(collector);
  OnLoop([&] {
    client_->Send(Hello(1));
    client_->Close(absl::OkStatus());
  });
  EXPECT_TRUE(echo_.Closed().get().ok());
}

TEST_F(GrpcStreamTest, DroppedClientStreamReachesTheServerAsCancelled) {
  Collector collector(1);
  Open(collector);
  OnLoop([&] { client_->Send(Hello(1)); });
  collector.All().get();
  OnLoop([&] { client_.reset(); });
  EXPECT_EQ(echo_.Closed().get().code(), absl::StatusCode::kCancelled);
}

TEST_F(GrpcStreamTest, ServerShutdownClosesTheClient) {
  Collector collector(1);
  Open(collector);
  OnLoop([&] { client_->Send(Hello(1)); });
  collector.All().get();
  server_->Shutdown(std::chrono::system_clock::now());
  EXPECT_FALSE(collector.Closed().get().ok());
}

}  // namespace
}  // namespace baton
