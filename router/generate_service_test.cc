// The gRPC service over a real channel; behind the core a worker that does what the test says.
#include "router/generate_service.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "baton/v1/inference.grpc.pb.h"
#include "common/event_loop.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/time.h"
#include "common/worker_pool.h"
#include "gtest/gtest.h"
#include "router/fake_worker.h"
#include "text/test_vocab.h"

namespace baton::router {
namespace {

constexpr size_t kTextBytes = 200;  // of the one long token

class GenerateServiceTest : public testing::Test {
 protected:
  GenerateServiceTest() : loop_(EventLoop::Options()), pool_(WorkerPool::Options()) {
    VocabData data = ByteVocabData();
    long_token_ = AddToken(std::string(kTextBytes, 'x'), TokenType::kNormal, &data);
    model_ = ModelText::Create("tiny", 20000, data).value();
    FakeWorker::Options options;
    options.name = "d";
    options.pool_blocks = 10000;
    options.context_length = 20000;
    worker_ = std::make_unique<FakeWorker>(loop_, options);
  }

  void Start(const GenerateServiceOptions& options) {
    CoreOptions core;
    core.epoch = Epoch{1, 2};
    core.workers = {{"d", false}};
    core.on_workers = [this](const WorkersState& state) {
      if (state.can_serve) serving_.set_value();
    };
    core_ = std::make_unique<RouterCore>(
        core, loop_, [this](const std::string&) { return worker_->Connect(); }, metrics_, log_);
    frontend_ = std::make_unique<Frontend>(
        Frontend::Context{*model_, *core_, loop_, pool_, random_, wall_clock_});
    service_ = MakeGenerateService(options, loop_, *frontend_);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    loop_.Start();
    OnLoop([this] { core_->Start(); });
    serving_.get_future().wait();
    // A window that never grows: what the client does not read stays at the server.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16384);
    stub_ = v1::InferenceService::NewStub(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(), arguments));
  }

  void TearDown() override {
    OnLoop([this] { frontend_->Shutdown(absl::UnavailableError("the test ends")); });
    server_->Shutdown();
    server_->Wait();
    OnLoop([this] { core_->Stop(); });
    loop_.Stop();
  }

  void OnLoop(const std::function<void()>& task) {
    std::promise<void> done;
    loop_.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  // Waits for what other threads do.
  void WaitUntil(const std::function<bool()>& condition) {
    for (bool done = false; !done; std::this_thread::yield()) {
      OnLoop([&] { done = condition(); });
    }
  }

  v1::Generation Ask() const {
    v1::Generation generation;
    generation.mutable_prompt()->add_segments()->set_text("hello");
    generation.mutable_stop()->set_max_tokens(10000);
    return generation;
  }

  // `count` tokens of kTextBytes each of every choice, one choice after the other in each step.
  void SendTokens(uint32_t count, bool last = false) {
    WaitUntil([this] { return !worker_->submits.empty(); });
    OnLoop([&] {
      for (uint32_t i = 0; i < count; ++i) {
        std::vector<worker::v1::WorkerEvent> step;
        const auto& state = worker_->submits.back().state();
        for (int choice = 0; choice < state.choices_size(); ++choice) {
          worker::v1::Token& token = *step.emplace_back().mutable_token();
          *token.mutable_attempt() = state.attempt();
          token.set_choice(static_cast<uint32_t>(choice));
          token.set_position(5 + i);
          token.set_token(long_token_);
          token.set_visible_bytes(kTextBytes * (i + 1));
          if (last && i + 1 == count) token.set_finish_reason(worker::v1::FINISH_REASON_LENGTH);
        }
        worker_->Send(std::move(step));
      }
    });
  }

  grpc::Status Unary(const v1::GenerateRequest& request, uint32_t tokens,
                     v1::GenerateResponse& response, bool last = true) {
    grpc::Status status;
    std::thread caller([&] {
      grpc::ClientContext context;
      status = stub_->Generate(&context, request, &response);
    });
    SendTokens(tokens, last);
    caller.join();
    return status;
  }

  // Everything the client never asked for, then the status.
  grpc::Status ReadAll(grpc::ClientReader<v1::GenerateStreamResponse>& reader, size_t& bytes) {
    v1::GenerateStreamResponse response;
    while (reader.Read(&response)) bytes += response.delta().text().size();
    return reader.Finish();
  }

  EventLoop loop_;
  WorkerPool pool_;
  MetricsRegistry metrics_;
  Logger log_ = Logger::Silent();
  SeededRandom random_{1};
  SystemWallClock wall_clock_;
  TokenId long_token_ = 0;
  std::unique_ptr<ModelText> model_;
  std::unique_ptr<FakeWorker> worker_;
  std::promise<void> serving_;
  std::unique_ptr<RouterCore> core_;
  std::unique_ptr<Frontend> frontend_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

TEST_F(GenerateServiceTest, AClientThatLetsTooMuchWaitEndsWithResourceExhausted) {
  GenerateServiceOptions options;
  options.client_buffer_bytes = 64 << 10;
  Start(options);
  grpc::ClientContext context;
  v1::GenerateStreamRequest request;
  *request.mutable_generation() = Ask();
  const auto reader = stub_->GenerateStream(&context, request);
  SendTokens(10000);
  WaitUntil([this] { return !worker_->cancels.empty(); });
  size_t bytes = 0;
  const grpc::Status status = ReadAll(*reader, bytes);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(status.error_message().find("65536 bytes"), std::string::npos)
      << status.error_message();
  EXPECT_LT(bytes, 10000 * kTextBytes);
}

// The bound is the client's, not each choice's.
TEST_F(GenerateServiceTest, FourChoicesShareTheBufferOfAClientThatReadsSlowly) {
  GenerateServiceOptions options;
  options.client_buffer_bytes = 256 << 10;
  Start(options);
  grpc::ClientContext context;
  v1::GenerateStreamRequest request;
  *request.mutable_generation() = Ask();
  request.mutable_generation()->set_n(4);
  const auto reader = stub_->GenerateStream(&context, request);
  SendTokens(2500);
  WaitUntil([this] { return !worker_->cancels.empty(); });
  size_t bytes = 0;
  EXPECT_EQ(ReadAll(*reader, bytes).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_LT(bytes, 4 * 2500 * kTextBytes);
}

TEST_F(GenerateServiceTest, AReadersFourChoicesArriveWholeWithOneEndEach) {
  Start({});
  grpc::ClientContext context;
  v1::GenerateStreamRequest request;
  *request.mutable_generation() = Ask();
  request.mutable_generation()->set_n(4);
  const auto reader = stub_->GenerateStream(&context, request);
  SendTokens(100, true);
  std::map<uint32_t, size_t> bytes;
  std::map<uint32_t, int> ends;
  int completed = 0;
  v1::GenerateStreamResponse response;
  while (reader->Read(&response)) {
    if (response.has_delta()) bytes[response.delta().choice()] += response.delta().text().size();
    if (response.has_choice_end()) ++ends[response.choice_end().choice()];
    if (response.has_completed()) ++completed;
  }
  EXPECT_TRUE(reader->Finish().ok());
  ASSERT_EQ(bytes.size(), 4u);
  for (uint32_t choice = 0; choice < 4; ++choice) {
    EXPECT_EQ(bytes[choice], 100 * kTextBytes);
    EXPECT_EQ(ends[choice], 1);
  }
  EXPECT_EQ(completed, 1);
}

TEST_F(GenerateServiceTest, AnAnswerThatWaitsWholeForAClientThatTakesNothingEndsWithAnError) {
  GenerateServiceOptions options;
  options.client_buffer_bytes = 64 << 20;
  options.slow_client_timeout = std::chrono::milliseconds(50);
  Start(options);
  grpc::ClientContext context;
  v1::GenerateStreamRequest request;
  *request.mutable_generation() = Ask();
  const auto reader = stub_->GenerateStream(&context, request);
  SendTokens(2000, true);
  WaitUntil([this] { return core_->live_requests() == 0; });
  std::promise<void> long_after;
  TimerHandle timer;
  OnLoop([&] {
    timer = loop_.PostAfter(20 * options.slow_client_timeout, [&] { long_after.set_value(); });
  });
  long_after.get_future().wait();
  // All deltas may wait as one that is being written; what comes behind it is lost.
  v1::GenerateStreamResponse response;
  while (reader->Read(&response)) EXPECT_FALSE(response.has_completed());
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GenerateServiceTest, AClientThatTakesNothingForLongEndsWithResourceExhausted) {
  GenerateServiceOptions options;
  options.client_buffer_bytes = 64 << 20;
  options.slow_client_timeout = std::chrono::milliseconds(50);
  Start(options);
  grpc::ClientContext context;
  v1::GenerateStreamRequest request;
  *request.mutable_generation() = Ask();
  const auto reader = stub_->GenerateStream(&context, request);
  SendTokens(9000);
  WaitUntil([this] { return !worker_->cancels.empty(); });
  size_t bytes = 0;
  EXPECT_EQ(ReadAll(*reader, bytes).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GenerateServiceTest, AClientIsNotBlamedForTheTimeInWhichTheServerStoodStill) {
  GenerateServiceOptions options;
  options.client_buffer_bytes = 64 << 20;
  options.slow_client_timeout = std::chrono::seconds(2);  // this thread may have to wait for a CPU
  Start(options);
  grpc::ClientContext context;
  v1::GenerateStreamRequest request;
  *request.mutable_generation() = Ask();
  const auto reader = stub_->GenerateStream(&context, request);
  SendTokens(1000, true);  // more than is on the way to a client that does not read
  OnLoop([&] {
    const Time until = loop_.Now() + options.slow_client_timeout + std::chrono::seconds(1);
    while (loop_.Now() < until) std::this_thread::yield();
  });
  size_t bytes = 0;
  const grpc::Status status = ReadAll(*reader, bytes);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(bytes, 1000 * kTextBytes);
}

TEST_F(GenerateServiceTest, AClientThatReadsGetsEverythingInOrder) {
  Start({});
  grpc::ClientContext context;
  v1::GenerateStreamRequest request;
  *request.mutable_generation() = Ask();
  const auto reader = stub_->GenerateStream(&context, request);
  SendTokens(100, true);
  size_t bytes = 0;
  const grpc::Status status = ReadAll(*reader, bytes);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(bytes, 100 * kTextBytes);
}

TEST_F(GenerateServiceTest, ACancelledCallIsCancelledAtTheWorker) {
  Start({});
  grpc::ClientContext context;
  v1::GenerateStreamRequest request;
  *request.mutable_generation() = Ask();
  const auto reader = stub_->GenerateStream(&context, request);
  SendTokens(1);
  context.TryCancel();
  WaitUntil([this] { return !worker_->cancels.empty(); });
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(GenerateServiceTest, AUnaryCallAnswersOnceWithEverything) {
  Start({});
  v1::GenerateRequest request;
  *request.mutable_generation() = Ask();
  request.mutable_generation()->set_request_id("r1");
  v1::GenerateResponse response;
  const grpc::Status status = Unary(request, 3, response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.request_id(), "r1");
  EXPECT_EQ(response.prompt_token_ids_size(), 5);
  ASSERT_EQ(response.choices_size(), 1);
  EXPECT_EQ(response.choices(0).token_ids_size(), 3);
  EXPECT_EQ(response.choices(0).text().size(), 3 * kTextBytes);
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(response.usage().completion_tokens(), 3u);
  EXPECT_EQ(response.workers().decode(), "d");
}

TEST_F(GenerateServiceTest, AUnaryAnswerHasEveryChoice) {
  Start({});
  v1::GenerateRequest request;
  *request.mutable_generation() = Ask();
  request.mutable_generation()->set_n(3);
  v1::GenerateResponse response;
  const grpc::Status status = Unary(request, 2, response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.choices_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(response.choices(i).index(), static_cast<uint32_t>(i));
    EXPECT_EQ(response.choices(i).text().size(), 2 * kTextBytes);
    EXPECT_EQ(response.choices(i).finish_reason(), v1::FINISH_REASON_LENGTH);
  }
  EXPECT_EQ(response.usage().completion_tokens(), 6u);
  EXPECT_EQ(response.usage().prompt_tokens(), 5u);
}

TEST_F(GenerateServiceTest, AUnaryAnswerThatNoClientCouldReceiveEndsTheRequest) {
  GenerateServiceOptions options;
  options.max_answer_bytes = 64 << 10;
  Start(options);
  v1::GenerateRequest request;
  *request.mutable_generation() = Ask();
  request.mutable_generation()->set_n(2);
  for (const bool last : {false, true}) {  // or it has ended meanwhile
    OnLoop([this] { worker_->submits.clear(); });
    v1::GenerateResponse response;
    const grpc::Status status = Unary(request, 1000, response, last);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_NE(status.error_message().find("larger than 65536 bytes"), std::string::npos)
        << status.error_message();
    if (!last) WaitUntil([this] { return !worker_->cancels.empty(); });
  }
}

}  // namespace
}  // namespace baton::router
