// The public server over a real channel, without workers: standard services, text calls, errors.
#include "router/router_server.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "baton/v1/inference.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "model/tiny_model.h"

namespace baton::router {
namespace {

class RouterServerTest : public testing::Test {
 protected:
  void SetUp() override { StartServer(""); }

  void StartServer(const std::string& admin_listen) {
    server_.reset();
    const std::string model = testing::TempDir() + "/tiny.gguf";
    ASSERT_TRUE(model::WriteTinyModel({}, model).ok());
    RouterServerOptions options;
    options.model_path = model;
    options.admin_listen = admin_listen;
    options.core.workers = {{"127.0.0.1:1", false}};  // nobody listens there
    auto server = RouterServer::Start(std::move(options), log_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = Channel(server_->listen_address());
    stub_ = v1::InferenceService::NewStub(channel_);
  }

  static std::shared_ptr<grpc::Channel> Channel(const std::string& address) {
    return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  }

  // A unary call with raw bytes: the standard services' messages are in no package.
  static grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const std::string& request, std::string& response) {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    const grpc::Slice slice(request);
    const grpc::ByteBuffer out(&slice, 1);
    grpc::ByteBuffer in;
    grpc::CompletionQueue queue;
    grpc::Status status;
    const auto call = stub.PrepareUnaryCall(&context, method, out, &queue);
    call->StartCall();
    call->Finish(&in, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    if (!status.ok()) return status;
    std::vector<grpc::Slice> slices;
    (void)in.Dump(&slices);
    for (const grpc::Slice& part : slices) {
      response.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
    return status;
  }

  Logger log_ = Logger::Silent();
  std::unique_ptr<RouterServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

TEST_F(RouterServerTest, IsNotServingWithoutWorkers) {
  std::string response;
  ASSERT_TRUE(Call(channel_, "/grpc.health.v1.Health/Check", "", response).ok());
  EXPECT_EQ(response, "\x08\x02");  // NOT_SERVING
  const std::string service = "baton.v1.InferenceService";
  response.clear();
  const std::string request = "\x0a" + std::string(1, static_cast<char>(service.size())) + service;
  ASSERT_TRUE(Call(channel_, "/grpc.health.v1.Health/Check", request, response).ok());
  EXPECT_EQ(response, "\x08\x02");
}

TEST_F(RouterServerTest, ChannelzIsOnTheAdminPortOnly) {
  // The plugin stays in the process: this is the only test that turns it on.
  StartServer("127.0.0.1:0");
  const std::string method = "/grpc.channelz.v1.Channelz/GetServers";
  std::string response;
  EXPECT_EQ(Call(channel_, method, "", response).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_TRUE(Call(Channel(server_->admin_address()), method, "", response).ok());
  EXPECT_FALSE(response.empty());
}

TEST_F(RouterServerTest, ErrorsCarryTheirDetails) {
  grpc::ClientContext context;
  v1::GenerateRequest request;
  v1::GenerateResponse response;
  request.mutable_generation()->mutable_prompt()->add_segments()->set_text("hi");
  request.mutable_generation()->mutable_sampling()->set_top_p(0);
  const grpc::Status status = stub_->Generate(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), 3);
  google::rpc::ErrorInfo info;
  google::rpc::BadRequest bad;
  for (const auto& detail : details.details()) {
    detail.UnpackTo(&info);
    detail.UnpackTo(&bad);
  }
  EXPECT_EQ(info.reason(), "INVALID_FIELD");
  EXPECT_EQ(info.domain(), "baton");
  ASSERT_EQ(bad.field_violations_size(), 1);
  EXPECT_EQ(bad.field_violations(0).field(), "generation.sampling.top_p");
}

TEST_F(RouterServerTest, WithoutWorkersGenerateIsUnavailableAndTextStillWorks) {
  v1::GenerateStreamRequest request;
  request.mutable_generation()->mutable_prompt()->add_segments()->set_text("hi");
  grpc::ClientContext generate;
  const auto reader = stub_->GenerateStream(&generate, request);
  v1::GenerateStreamResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);

  v1::TokenizeRequest text;
  text.mutable_prompt()->add_segments()->set_text("hello world");
  v1::TokenizeResponse ids;
  grpc::ClientContext tokenize;
  ASSERT_TRUE(stub_->Tokenize(&tokenize, text, &ids).ok());
  EXPECT_GT(ids.token_ids_size(), 0);
  v1::DetokenizeRequest back;
  *back.mutable_token_ids() = ids.token_ids();
  v1::DetokenizeResponse again;
  grpc::ClientContext detokenize;
  ASSERT_TRUE(stub_->Detokenize(&detokenize, back, &again).ok());
  EXPECT_EQ(again.text(), "hello world");

  v1::ListModelsResponse models;
  grpc::ClientContext list;
  ASSERT_TRUE(stub_->ListModels(&list, {}, &models).ok());
  EXPECT_EQ(models.models_size(), 0);
}

TEST_F(RouterServerTest, ReflectionKnowsThePublicService) {
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const grpc::Slice slice(std::string("\x3a\x00", 2));  // list_services: ""
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  queue.Next(&tag, &ok);
  grpc::ByteBuffer in;
  call->Read(&in, nullptr);
  queue.Next(&tag, &ok);
  ASSERT_TRUE(ok);
  grpc::Slice whole;
  ASSERT_TRUE(in.DumpToSingleSlice(&whole).ok());
  const std::string text(reinterpret_cast<const char*>(whole.begin()), whole.size());
  EXPECT_NE(text.find("baton.v1.InferenceService"), std::string::npos);
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
}

}  // namespace
}  // namespace baton::router
