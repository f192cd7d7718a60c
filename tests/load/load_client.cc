// Sends requests to a router, at a rate (open loop) or so many at once (closed loop), and prints
// one JSON line per request when it ends: code, reason, seconds since the start of the program when
// it was sent, seconds until the first token (-1: none) and until the end, tokens, RetryInfo; with
// --token_times also when it was sent and each token came, on the monotonic clock.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "baton/v1/inference.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

ABSL_FLAG(std::string, target, "", "HOST:PORT of a router");
ABSL_FLAG(double, rate, 0, "requests per second; 0: closed loop");
ABSL_FLAG(int, concurrency, 1, "requests at once of the closed loop");
ABSL_FLAG(double, seconds, 10, "how long new requests are sent");
ABSL_FLAG(int, requests, 0, "send only so many; 0: no limit");
ABSL_FLAG(int, prompt_tokens, 32, "of each request");
ABSL_FLAG(int, max_tokens, 8, "of each request, all of them generated");
ABSL_FLAG(int, timeout_ms, 0, "deadline of each request; 0: none");
ABSL_FLAG(int, priority, 0, "of each request");
ABSL_FLAG(std::string, tenant, "", "of each request");
ABSL_FLAG(bool, token_times, false, "print when each token came");

namespace {

namespace v1 = baton::v1;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

// CLOCK_MONOTONIC, which every process of a machine shares.
double Monotonic(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// Counts the requests under way. Thread-safe.
class InFlight {
 public:
  void Add() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++count_;
  }
  void Remove() {
    const std::lock_guard<std::mutex> lock(mutex_);
    --count_;
    changed_.notify_all();
  }
  void WaitBelow(int limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return count_ < limit; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

v1::GenerateStreamRequest MakeRequest(int number) {
  v1::GenerateStreamRequest request;
  v1::Generation& generation = *request.mutable_generation();
  auto& ids = *generation.mutable_prompt()->add_segments()->mutable_token_ids()->mutable_ids();
  for (int i = 0; i < absl::GetFlag(FLAGS_prompt_tokens); ++i) ids.Add(5 + (number + i) % 200);
  generation.mutable_stop()->set_max_tokens(absl::GetFlag(FLAGS_max_tokens));
  generation.mutable_stop()->set_ignore_eos(true);
  generation.set_priority(absl::GetFlag(FLAGS_priority));
  generation.set_tenant(absl::GetFlag(FLAGS_tenant));
  return request;
}

// One request; deletes itself when gRPC is done with it.
class Call : public grpc::ClientReadReactor<v1::GenerateStreamResponse> {
 public:
  Call(v1::InferenceService::Stub& stub, int number, Clock::time_point start, InFlight& in_flight)
      : request_(MakeRequest(number)), sent_s_(SecondsSince(start)), in_flight_(in_flight) {
    const int timeout_ms = absl::GetFlag(FLAGS_timeout_ms);
    if (timeout_ms > 0) {
      context_.set_deadline(std::chrono::system_clock::now() +
                            std::chrono::milliseconds(timeout_ms));
    }
    in_flight_.Add();
    stub.async()->GenerateStream(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (response_.has_delta()) {
      if (tokens_ == 0) first_token_s_ = SecondsSince(sent_);
      tokens_ += response_.delta().token_ids_size();
      if (absl::GetFlag(FLAGS_token_times)) {
        token_times_.resize(static_cast<size_t>(tokens_), Monotonic(Clock::now()));
      }
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    nlohmann::json line = {
        {"sent", sent_s_},        {"code", static_cast<int>(status.error_code())},
        {"ttft", first_token_s_}, {"total", SecondsSince(sent_)},
        {"tokens", tokens_},      {"tenant", absl::GetFlag(FLAGS_tenant)}};
    if (absl::GetFlag(FLAGS_token_times)) {
      line["sent_at"] = Monotonic(sent_);
      line["token_times"] = token_times_;
    }
    AddDetails(status, line);
    std::printf("%s\n", line.dump().c_str());
    InFlight& in_flight = in_flight_;
    delete this;  // before it is said: the program may end when nothing is in flight
    in_flight.Remove();
  }

 private:
  static void AddDetails(const grpc::Status& status, nlohmann::json& line) {
    google::rpc::Status details;
    if (!details.ParseFromString(status.error_details())) return;
    for (const auto& detail : details.details()) {
      google::rpc::ErrorInfo info;
      google::rpc::RetryInfo retry;
      if (detail.type_url().ends_with("google.rpc.ErrorInfo") &&
          info.ParseFromString(detail.value())) {
        line["reason"] = info.reason();
      } else if (detail.type_url().ends_with("google.rpc.RetryInfo") &&
                 retry.ParseFromString(detail.value())) {
        line["retry"] =
            static_cast<double>(retry.retry_delay().seconds()) + retry.retry_delay().nanos() / 1e9;
      }
    }
  }

  const v1::GenerateStreamRequest request_;
  const Clock::time_point sent_ = Clock::now();
  const double sent_s_;
  InFlight& in_flight_;
  grpc::ClientContext context_;
  v1::GenerateStreamResponse response_;
  double first_token_s_ = -1;
  int tokens_ = 0;
  std::vector<double> token_times_;
};

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const auto stub = v1::InferenceService::NewStub(
      grpc::CreateChannel(absl::GetFlag(FLAGS_target), grpc::InsecureChannelCredentials()));
  const double rate = absl::GetFlag(FLAGS_rate);
  const double seconds = absl::GetFlag(FLAGS_seconds);
  InFlight in_flight;
  const Clock::time_point start = Clock::now();
  const int requests = absl::GetFlag(FLAGS_requests);
  for (int number = 0; SecondsSince(start) < seconds && (requests == 0 || number < requests);
       ++number) {
    if (rate > 0) {
      std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(
                                                std::chrono::duration<double>(number / rate)));
    } else {
      in_flight.WaitBelow(absl::GetFlag(FLAGS_concurrency));
    }
    new Call(*stub, number, start, in_flight);
  }
  in_flight.WaitBelow(1);
  return 0;
}
