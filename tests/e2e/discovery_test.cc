// A router that knows its workers by one name, over real sockets: the name's answers come and go.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baton/v1/inference.grpc.pb.h"
#include "common/host_port.h"
#include "common/mutex.h"
#include "model/tiny_model.h"
#include "router/resolver.h"
#include "router/router_server.h"
#include "worker/worker_server.h"

namespace baton {
namespace {

using Hosts = absl::StatusOr<std::vector<std::string>>;

// What the test says the name server knows; shared by test and resolver.
struct NameServer {
  Mutex mutex;
  Hosts hosts BATON_GUARDED_BY(mutex) = std::vector<std::string>();

  void Set(Hosts now) {
    MutexLock lock(mutex);
    hosts = std::move(now);
  }
};

class TestResolver : public router::Resolver {
 public:
  TestResolver(NameServer& names, Executor& executor) : names_(names), executor_(executor) {}
  void Resolve(const std::string& host, Done done) override {
    MutexLock lock(names_.mutex);
    Hosts hosts = host == "workers.test" ? names_.hosts : absl::UnavailableError("unknown name");
    executor_.Post([done = std::move(done), hosts = std::move(hosts)] { done(hosts); });
  }

 private:
  NameServer& names_;
  Executor& executor_;
};

class DiscoveryTest : public testing::Test {
 protected:
  void SetUp() override {
    model_ = testing::TempDir() + "/tiny.gguf";
    ASSERT_TRUE(model::WriteTinyModel({}, model_).ok());
  }

  std::unique_ptr<worker::WorkerServer> Worker(const std::string& name, const std::string& listen) {
    worker::ServerOptions options;
    options.listen = listen;
    options.node.model.path = model_;
    options.node.worker.name = name;
    options.node.worker.role = worker::v1::ROLE_DECODE;
    auto server = worker::WorkerServer::Create(options, log_);
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? *std::move(server) : nullptr;
  }

  void StartRouter(int port) {
    router::RouterServerOptions options;
    options.model_path = model_;
    options.core.workers = {{"workers.test:" + std::to_string(port), false}};
    options.resolve_interval = std::chrono::milliseconds(50);
    options.make_resolver = [this](Executor& executor) {
      return std::make_unique<TestResolver>(names_, executor);
    };
    options.on_all_workers_ready = [this] { all_ready_.set_value(); };
    auto server = router::RouterServer::Start(std::move(options), log_);
    ASSERT_TRUE(server.ok()) << server.status();
    router_ = *std::move(server);
    stub_ = v1::InferenceService::NewStub(
        grpc::CreateChannel(router_->listen_address(), grpc::InsecureChannelCredentials()));
  }

  // The name of the worker that answered one request, or the error.
  std::string Served() {
    v1::GenerateRequest request;
    request.mutable_generation()->mutable_prompt()->add_segments()->set_text("the time");
    request.mutable_generation()->mutable_stop()->set_max_tokens(2);
    v1::GenerateResponse response;
    grpc::ClientContext context;
    const grpc::Status status = stub_->Generate(&context, request, &response);
    return status.ok() ? response.workers().decode() : status.error_message();
  }

  // Asks until that worker answers; the last answer.
  std::string ServedUntil(const std::string& name) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::string served;
    do {
      served = Served();
    } while (served != name && std::chrono::steady_clock::now() < patience);
    return served;
  }

  const Logger log_ = Logger::Silent();
  std::string model_;
  NameServer names_;
  std::promise<void> all_ready_;
  std::unique_ptr<router::RouterServer> router_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

TEST_F(DiscoveryTest, WorkersBehindANameComeAndGo) {
  auto first = Worker("first", "127.0.0.1:0");
  ASSERT_NE(first, nullptr);
  const int port = ParseHostPort(first->listen_address())->port;

  names_.Set(absl::UnavailableError("the name server is down"));
  StartRouter(port);
  EXPECT_EQ(Served(), "no worker can serve now");
  names_.Set(std::vector<std::string>{"127.0.0.1"});
  all_ready_.get_future().wait();
  EXPECT_EQ(Served(), "first");

  auto second = Worker("second", "127.0.0.2:" + std::to_string(port));
  ASSERT_NE(second, nullptr);
  names_.Set(std::vector<std::string>{"127.0.0.1", "127.0.0.2"});
  first.reset();
  EXPECT_EQ(ServedUntil("second"), "second");

  names_.Set(absl::UnavailableError("the name server is down"));
  EXPECT_EQ(ServedUntil("second"), "second");
  names_.Set(std::vector<std::string>{"127.0.0.3"});
  auto third = Worker("third", "127.0.0.3:" + std::to_string(port));
  ASSERT_NE(third, nullptr);
  second.reset();
  EXPECT_EQ(ServedUntil("third"), "third");
}

}  // namespace
}  // namespace baton
