// Keeps so many streams running on several routers at once and holds every answer to the one that
// the same request got alone. Some are cancelled at a random moment, some have a deadline, some are
// read slowly. A line every few seconds to stderr, at the end one JSON line to stdout; exit code 1
// when anything was not as it must be.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_split.h"
#include "baton/v1/inference.grpc.pb.h"
#include "tests/load/soak_pool.h"

ABSL_FLAG(std::string, pool, "", "requests and their answers (tests/load/soak_pool.h)");
ABSL_FLAG(std::string, targets, "", "HOST:PORT,... of the routers");
ABSL_FLAG(int, streams, 64, "at once");
ABSL_FLAG(double, seconds, 30, "how long new requests are sent");
ABSL_FLAG(uint64_t, seed, 1, "of everything that is drawn");
ABSL_FLAG(double, progress_s, 10, "seconds between two lines");

namespace baton::soak {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// How a request is treated: of 100 so many each.
constexpr int kCancelled = 24;  // some end before it comes: 20 at least are really cancelled
constexpr int kDeadline = 6;
constexpr int kSlow = 5;
// The moments of cancels by time, deadlines and a slow reader's pauses are drawn up to this.
constexpr int kLongestMs = 400;
constexpr int kPauses = 3;
constexpr int kComplaints = 3;  // told in full

// Calls functions at their times on one thread.
class Timer {
 public:
  Timer() : thread_([this] { Run(); }) {}
  ~Timer() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void After(Milliseconds wait, std::function<void()> call) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      calls_.emplace(Clock::now() + wait, std::move(call));
    }
    changed_.notify_all();
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopping_) {
      if (calls_.empty()) {
        changed_.wait(lock);
      } else if (calls_.begin()->first > Clock::now()) {
        changed_.wait_until(lock, calls_.begin()->first);
      } else {
        const std::function<void()> call = std::move(calls_.extract(calls_.begin()).mapped());
        lock.unlock();
        call();
        lock.lock();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, std::function<void()>> calls_;
  bool stopping_ = false;
  std::thread thread_;
};

struct Counts {
  uint64_t ended = 0;
  uint64_t equal = 0;      // whole answers
  uint64_t cancelled = 0;  // by us, the beginning of the right answer
  uint64_t late = 0;       // their own deadline, likewise
  uint64_t different = 0;
  uint64_t failed = 0;
  uint64_t tokens = 0;
};

// What all calls share. Thread-safe.
class Ledger {
 public:
  void Started() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++running_;
  }
  // `field` of the counts is where the call belongs.
  void Ended(uint64_t Counts::*field, int tokens) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++counts_.ended;
    ++(counts_.*field);
    counts_.tokens += static_cast<uint64_t>(tokens);
    --running_;
    changed_.notify_all();
  }
  // False when the time came first.
  bool WaitBelow(int limit, Clock::time_point until) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_until(lock, until, [&] { return running_ < limit; });
  }
  Counts counts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counts_;
  }
  bool MayComplain() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return complaints_++ < kComplaints;
  }
  int running() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return running_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_ = 0;
  int complaints_ = 0;
  Counts counts_;
};

// What is done to a request beside reading it.
struct Treatment {
  std::optional<int> cancel_after_tokens;
  std::optional<Milliseconds> cancel_after;
  std::optional<Milliseconds> deadline;
  std::vector<Milliseconds> pauses;  // one after each message

  bool cancels() const { return cancel_after_tokens.has_value() || cancel_after.has_value(); }
};

// Holds itself until gRPC is done with it.
class Call : public grpc::ClientReadReactor<v1::GenerateStreamResponse>,
             public std::enable_shared_from_this<Call> {
 public:
  Call(const Expected& expected, Treatment treatment, Ledger& ledger, Timer& timer)
      : expected_(expected), treatment_(std::move(treatment)), ledger_(ledger), timer_(timer) {}

  void Start(v1::InferenceService::Stub& stub) {
    self_ = shared_from_this();
    ledger_.Started();
    if (treatment_.deadline.has_value()) {
      context_.set_deadline(std::chrono::system_clock::now() + *treatment_.deadline);
    }
    stub.async()->GenerateStream(&context_, &expected_.request, this);
    StartRead(&part_);
    StartCall();
    if (treatment_.cancel_after.has_value()) {
      timer_.After(*treatment_.cancel_after, [weak = weak_from_this()] {
        if (const auto call = weak.lock()) call->context_.TryCancel();
      });
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    answer_.Add(std::move(part_));
    part_.Clear();
    const std::optional<int>& limit = treatment_.cancel_after_tokens;
    if (limit.has_value() && answer_.tokens() >= *limit) context_.TryCancel();
    if (treatment_.pauses.empty()) return StartRead(&part_);
    const Milliseconds pause = treatment_.pauses.back();
    treatment_.pauses.pop_back();
    AddHold();  // for a read that starts outside a reaction
    timer_.After(pause, [self = shared_from_this()] {
      self->StartRead(&self->part_);
      self->RemoveHold();
    });
  }

  void OnDone(const grpc::Status& status) override {
    uint64_t Counts::*const field = Judge(status);
    if (field == &Counts::different || field == &Counts::failed) Complain(status);
    const int tokens = answer_.tokens();
    Ledger& ledger = ledger_;
    self_.reset();  // this object is gone, most often: the program may end when nobody runs
    ledger.Ended(field, tokens);
  }

 private:
  uint64_t Counts::*Judge(const grpc::Status& status) const {
    if (status.ok()) return answer_.SameAs(expected_.answer) ? &Counts::equal : &Counts::different;
    if (!answer_.IsBeginningOf(expected_.answer)) return &Counts::different;
    const grpc::StatusCode code = status.error_code();
    if (treatment_.cancels() && code == grpc::StatusCode::CANCELLED) return &Counts::cancelled;
    // Known to come too late, it is refused at once.
    const bool late =
        code == grpc::StatusCode::DEADLINE_EXCEEDED || code == grpc::StatusCode::RESOURCE_EXHAUSTED;
    return treatment_.deadline.has_value() && late ? &Counts::late : &Counts::failed;
  }

  void Complain(const grpc::Status& status) {
    if (!ledger_.MayComplain()) return;
    std::fprintf(stderr, "NOT RIGHT: code %d, %s\nrequest: %s\nwanted: %s\ngot: %s\n",
                 static_cast<int>(status.error_code()), status.error_message().c_str(),
                 expected_.request.ShortDebugString().c_str(),
                 expected_.answer.ShortDebugString().c_str(), answer_.Text().c_str());
  }

  const Expected& expected_;
  Treatment treatment_;
  Ledger& ledger_;
  Timer& timer_;
  grpc::ClientContext context_;
  v1::GenerateStreamResponse part_;
  Answer answer_;
  std::shared_ptr<Call> self_;
};

class Drawer {
 public:
  explicit Drawer(uint64_t seed) : random_(seed) {}

  int Below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }
  Milliseconds Time() { return Milliseconds(1 + Below(kLongestMs)); }

  Treatment Draw(const v1::GenerateResponse& answer) {
    Treatment treatment;
    const int kind = Below(100);
    if (kind < kCancelled / 2) {
      treatment.cancel_after_tokens = Below(answer.choices(0).token_ids_size());
    } else if (kind < kCancelled) {
      treatment.cancel_after = Milliseconds(Below(kLongestMs / 4));
    } else if (kind < kCancelled + kDeadline) {
      treatment.deadline = Time();
    } else if (kind < kCancelled + kDeadline + kSlow) {
      for (int i = 0; i < kPauses; ++i) treatment.pauses.push_back(Time());
    }
    return treatment;
  }

 private:
  std::mt19937_64 random_;
};

// A connection each for those that read at once and those that do not, whose window is small enough
// that the router feels it.
struct Router {
  explicit Router(const std::string& target) {
    grpc::ChannelArguments own;
    own.SetInt("grpc.use_local_subchannel_pool", 1);
    quick = v1::InferenceService::NewStub(
        grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), own));
    own.SetInt("grpc.http2.lookahead_bytes", 1024);
    own.SetInt("grpc.http2.bdp_probe", 0);
    slow = v1::InferenceService::NewStub(
        grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), own));
  }
  std::unique_ptr<v1::InferenceService::Stub> quick;
  std::unique_ptr<v1::InferenceService::Stub> slow;
};

class Soak {
 public:
  Soak() : pool_(ReadPool(absl::GetFlag(FLAGS_pool))), drawer_(absl::GetFlag(FLAGS_seed)) {
    for (const auto& target : absl::StrSplit(absl::GetFlag(FLAGS_targets), ',')) {
      routers_.emplace_back(std::string(target));
    }
  }

  int Run() {
    const auto end = start_ + Seconds(absl::GetFlag(FLAGS_seconds));
    while (Clock::now() < end) {
      if (ledger_.WaitBelow(absl::GetFlag(FLAGS_streams), std::min(next_progress_, end))) SendOne();
      if (Clock::now() >= next_progress_) Progress();
    }
    while (!ledger_.WaitBelow(1, next_progress_)) Progress();
    Progress();
    const Counts c = ledger_.counts();
    std::printf("%s\n", nlohmann::json({{"ended", c.ended},
                                        {"equal", c.equal},
                                        {"cancelled", c.cancelled},
                                        {"late", c.late},
                                        {"different", c.different},
                                        {"failed", c.failed},
                                        {"tokens", c.tokens}})
                            .dump()
                            .c_str());
    return c.different + c.failed == 0 ? 0 : 1;
  }

 private:
  static Clock::duration Seconds(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  void SendOne() {
    const Expected& expected =
        pool_[static_cast<size_t>(drawer_.Below(static_cast<int>(pool_.size())))];
    Treatment treatment = drawer_.Draw(expected.answer);
    Router& router =
        routers_[static_cast<size_t>(drawer_.Below(static_cast<int>(routers_.size())))];
    auto& stub = treatment.pauses.empty() ? *router.quick : *router.slow;
    std::make_shared<Call>(expected, std::move(treatment), ledger_, timer_)->Start(stub);
  }

  void Progress() {
    next_progress_ += Seconds(absl::GetFlag(FLAGS_progress_s));
    const Counts c = ledger_.counts();
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    std::fprintf(stderr,
                 "%5.0f s: %llu ended, %llu equal, %llu cancelled, %llu late, %llu different, %llu "
                 "failed, %d running, %.0f tokens/s\n",
                 seconds, Number(c.ended), Number(c.equal), Number(c.cancelled), Number(c.late),
                 Number(c.different), Number(c.failed), ledger_.running(),
                 static_cast<double>(c.tokens) / seconds);
  }
  static unsigned long long Number(uint64_t value) { return value; }

  const std::vector<Expected> pool_;
  Drawer drawer_;
  std::vector<Router> routers_;
  Ledger ledger_;
  Timer timer_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point next_progress_ = start_ + Seconds(absl::GetFlag(FLAGS_progress_s));
};

}  // namespace
}  // namespace baton::soak

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return baton::soak::Soak().Run();
}
