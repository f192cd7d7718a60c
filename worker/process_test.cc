// Real worker processes on loopback: starting, serving, handing over, dying.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "model/tiny_model.h"
#include "worker/process_rig.h"
#include "worker/test_events.h"

namespace baton::worker {
namespace {

constexpr Epoch kRouter{3, 1};
// Bounds are for a machine with nothing else to do, and other tests run beside this one.
constexpr int kBusyMachine = 4;

std::string TinyModelPath() {
  static const std::string path = [] {
    const std::string made = testing::TempDir() + "/tiny." + std::to_string(getpid()) + ".gguf";
    EXPECT_TRUE(model::WriteTinyModel({}, made).ok());
    return made;
  }();
  return path;
}

std::vector<std::string> Args(std::vector<std::string> more = {}) {
  more.push_back("--model=" + TinyModelPath());
  more.push_back("--threads=1");
  return more;
}

DecoderState State(uint64_t request, uint32_t prompt, uint32_t max_tokens = 12) {
  DecoderState state;
  state.attempt = {kRouter, request, 1};
  for (uint32_t i = 0; i < prompt; ++i) {
    state.prompt.push_back(static_cast<TokenId>(3 + (i * 31 + prompt * 7) % 200));
  }
  state.stop.max_tokens = max_tokens;
  state.stop.ignore_eos = true;
  state.choices.resize(1);
  return state;
}

// Polls a metric, as a scraper would.
bool MetricBecomes(const WorkerProcess& worker, const std::string& sample, double value) {
  const Time deadline = SteadyNow() + std::chrono::seconds(60);
  while (SteadyNow() < deadline) {
    if (worker.Metric(sample) == value) return true;
  }
  return false;
}

struct Cluster {
  explicit Cluster(const std::string& transport, std::vector<std::string> prefill_args = {},
                   std::vector<std::string> decode_args = {}) {
    prefill_args.push_back("--transport=" + transport);
    decode_args.push_back("--transport=" + transport);
    prefill = std::make_unique<WorkerProcess>("prefill", Args(prefill_args));
    decode = std::make_unique<WorkerProcess>("decode", Args(decode_args));
    EXPECT_TRUE(prefill->ready()) << prefill->StderrText();
    EXPECT_TRUE(decode->ready()) << decode->StderrText();
    to_prefill = std::make_unique<ProcessRouter>(*prefill, kRouter);
    to_decode = std::make_unique<ProcessRouter>(*decode, kRouter);
    to_prefill->set_on_event([this](const v1::WorkerEvent& event) {
      if (event.has_started()) to_decode->Attach(AttemptOf(event));
    });
  }
  ~Cluster() {
    to_prefill.reset();
    to_decode.reset();
  }

  std::unique_ptr<WorkerProcess> prefill;
  std::unique_ptr<WorkerProcess> decode;
  std::unique_ptr<ProcessRouter> to_prefill;
  std::unique_ptr<ProcessRouter> to_decode;
};

TEST(WorkerProcessTest, DecodeWorkerServesAlone) {
  WorkerProcess worker("decode", Args());
  ASSERT_TRUE(worker.ready()) << worker.StderrText();
  ProcessRouter router(worker, kRouter);
  EXPECT_NE(worker.StderrText().find("\"loaded the model\""), std::string::npos);
  for (const std::string stage : {"open", "hash", "pack", "tables", "vocabulary"}) {
    EXPECT_GT(worker.Metric("baton_load_seconds{stage=\"" + stage + "\"}"), 0) << stage;
  }
  EXPECT_EQ(router.hello().role(), v1::ROLE_DECODE);
  EXPECT_EQ(router.hello().transfer_address(), worker.listen());
  const DecoderState state = State(1, 50);
  ASSERT_TRUE(router.Submit(state).ok());
  EXPECT_EQ(router.Tokens(state.attempt).size(), 12u);
  EXPECT_TRUE(MetricBecomes(worker, "baton_kv_blocks{state=\"free\"}", 1024));
  EXPECT_EQ(worker.Metric("baton_prompt_tokens_total"), 50);
  EXPECT_EQ(worker.Metric("baton_generation_tokens_total"), 12);
}

TEST(WorkerProcessTest, SplitEqualsUnifiedOverEachTransportAndKvType) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"tcp", "f16"}, {"shm", "f16"}, {"auto", "f16"}, {"tcp", "int8"}, {"shm", "int8"}};
  for (const auto& [transport, kv_type] : kinds) {
    Cluster cluster(transport, {"--kv-type=" + kv_type}, {"--kv-type=" + kv_type});
    uint64_t request = 0;
    for (const uint32_t prompt : {1u, 15u, 16u, 17u, 64u, 100u, 200u}) {
      const DecoderState split = State(++request, prompt);
      const DecoderState unified = State(++request, prompt);
      ASSERT_TRUE(cluster.to_decode->Submit(unified).ok());
      const absl::Status status = cluster.to_prefill->Submit(split, {cluster.to_decode->AsSink()});
      ASSERT_TRUE(status.ok()) << status;
      const std::vector<TokenId> tokens = cluster.to_decode->Tokens(split.attempt);
      EXPECT_EQ(tokens.size(), 12u) << transport << " " << prompt;
      EXPECT_EQ(tokens, cluster.to_decode->Tokens(unified.attempt)) << transport << " " << prompt;
    }
    EXPECT_TRUE(MetricBecomes(*cluster.prefill, "baton_kv_blocks{state=\"free\"}", 1024));
    EXPECT_TRUE(MetricBecomes(*cluster.decode, "baton_kv_blocks{state=\"free\"}", 1024));
    EXPECT_TRUE(MetricBecomes(*cluster.prefill, "baton_handoff_seconds_count", 7));
    EXPECT_GT(cluster.prefill->Metric("baton_handoff_bytes_total"), 0);
    EXPECT_TRUE(MetricBecomes(*cluster.decode, "baton_transfers_in_flight", 0));
  }
}

TEST(WorkerProcessTest, WorkersOfUnequalKvTypesDoNotHandOver) {
  Cluster cluster("auto", {"--kv-type=int8", "--reserve-patience-ms=200"}, {"--kv-type=f16"});
  EXPECT_NE(cluster.to_prefill->hello().layout_fp().SerializeAsString(),
            cluster.to_decode->hello().layout_fp().SerializeAsString());
  EXPECT_NE(cluster.to_prefill->hello().numerics_id().SerializeAsString(),
            cluster.to_decode->hello().numerics_id().SerializeAsString());
  const DecoderState state = State(1, 50);
  ASSERT_TRUE(cluster.to_prefill->Submit(state, {cluster.to_decode->AsSink()}).ok());
  ASSERT_TRUE(cluster.to_prefill->WaitFor(state.attempt,
                                          [](const auto& events) { return !events.empty(); }));
  EXPECT_TRUE(cluster.to_prefill->EventsOf(state.attempt).front().has_no_room());
}

// Every thread runs on the CPUs that --affinity names, and --threads is the number that computes:
// the model runner and the pool's.
TEST(WorkerProcessTest, ThreadsAndAffinityAreWhatTheFlagsSay) {
  WorkerProcess worker("decode", {"--model=" + TinyModelPath(), "--threads=3", "--affinity=0"});
  ASSERT_TRUE(worker.ready()) << worker.StderrText();
  size_t pool = 0;
  size_t all = 0;
  for (const auto& task : std::filesystem::directory_iterator(worker.proc() + "/task")) {
    std::ifstream status(task.path() / "status");
    const std::string text((std::istreambuf_iterator<char>(status)), {});
    ++all;
    pool += text.starts_with("Name:\tcpu-pool\n") ? 1 : 0;
    EXPECT_NE(text.find("Cpus_allowed_list:\t0\n"), std::string::npos) << text;
  }
  EXPECT_EQ(pool, 2u);
  EXPECT_GT(all, pool);
  WorkerProcess alone("decode", {"--model=" + TinyModelPath(), "--affinity=0"});
  ASSERT_TRUE(alone.ready()) << alone.StderrText();
  for (const auto& task : std::filesystem::directory_iterator(alone.proc() + "/task")) {
    std::ifstream name(task.path() / "comm");
    std::string line;
    std::getline(name, line);
    EXPECT_NE(line, "cpu-pool") << "by default one thread per CPU that it may use";
  }
}

TEST(WorkerProcessTest, APrefillWorkerGivesWayToADecodeWorker) {
  const int own = getpriority(PRIO_PROCESS, 0);
  for (const std::string role : {"prefill", "decode"}) {
    WorkerProcess worker(role, {"--model=" + TinyModelPath(), "--threads=2"});
    ASSERT_TRUE(worker.ready()) << worker.StderrText();
    size_t threads = 0;
    for (const auto& task : std::filesystem::directory_iterator(worker.proc() + "/task")) {
      std::ifstream name(task.path() / "comm");
      std::string line;
      std::getline(name, line);
      if (line != "cpu-pool" && line != "model-runner") continue;
      ++threads;
      EXPECT_EQ(getpriority(PRIO_PROCESS, static_cast<id_t>(std::stoi(task.path().filename()))),
                role == "prefill" ? std::min(own + 5, 19) : own)
          << role << " " << line;
    }
    EXPECT_EQ(threads, 2u);
  }
}

TEST(WorkerProcessTest, CancelFreesBothSidesWithinTwoSeconds) {
  Cluster cluster("auto");
  const DecoderState state = State(1, 300, 200);
  ASSERT_TRUE(cluster.to_prefill->Submit(state, {cluster.to_decode->AsSink()}).ok());
  ASSERT_TRUE(cluster.to_decode->WaitFor(state.attempt,
                                         [](const auto& events) { return events.size() >= 2; }));
  const Time start = SteadyNow();
  cluster.to_prefill->Cancel(state.attempt);
  cluster.to_decode->Cancel(state.attempt);
  EXPECT_TRUE(MetricBecomes(*cluster.prefill, "baton_kv_blocks{state=\"free\"}", 1024));
  EXPECT_TRUE(MetricBecomes(*cluster.decode, "baton_kv_blocks{state=\"free\"}", 1024));
  EXPECT_LT(ToSeconds(SteadyNow() - start), 2 * kBusyMachine);
}

TEST(WorkerProcessTest, RouterThatDiesLeavesNothingBehind) {
  Cluster cluster("auto");
  const DecoderState state = State(1, 300, 200);
  ASSERT_TRUE(cluster.to_prefill->Submit(state, {cluster.to_decode->AsSink()}).ok());
  ASSERT_TRUE(cluster.to_decode->WaitFor(state.attempt,
                                         [](const auto& events) { return !events.empty(); }));
  cluster.to_prefill.reset();
  cluster.to_decode.reset();
  EXPECT_TRUE(MetricBecomes(*cluster.prefill, "baton_kv_blocks{state=\"free\"}", 1024));
  EXPECT_TRUE(MetricBecomes(*cluster.decode, "baton_kv_blocks{state=\"free\"}", 1024));
}

// The sink stands still before the commit: the first token comes all the same; and when the sink is
// killed the source gets its blocks back.
TEST(WorkerProcessTest, StoppedSinkDelaysNeitherFirstTokenNorOthers) {
  for (const std::string transport : {"tcp", "shm"}) {
    // The prompt takes longer than the signal, so the commit does not get there.
    Cluster cluster(transport, {"--step-tokens=1", "--lease-ms=4000"}, {"--lease-ms=4000"});
    const DecoderState warm = State(1, 20);
    ASSERT_TRUE(cluster.to_prefill->Submit(warm, {cluster.to_decode->AsSink()}).ok());
    cluster.to_decode->Tokens(warm.attempt);
    const DecoderState state = State(2, 400);
    const DecoderState other = State(3, 40);
    WorkerProcess* const decode = cluster.decode.get();
    cluster.to_prefill->set_on_event([decode](const v1::WorkerEvent& event) {
      if (event.has_started()) decode->Signal(SIGSTOP);
    });
    ASSERT_TRUE(cluster.to_prefill->Submit(state, {cluster.to_decode->AsSink()}).ok());
    EXPECT_TRUE(cluster.to_prefill->WaitFor(state.attempt, [](const auto& events) {
      return std::any_of(events.begin(), events.end(),
                         [](const auto& event) { return event.has_first_token(); });
    })) << transport;
    cluster.to_prefill->set_on_event({});
    ASSERT_TRUE(cluster.to_prefill->Submit(other).ok());  // alone at the prefill worker
    EXPECT_EQ(cluster.to_prefill->Tokens(other.attempt).size(), 12u);
    cluster.decode->Signal(SIGKILL);
    EXPECT_TRUE(MetricBecomes(*cluster.prefill, "baton_kv_blocks{state=\"free\"}", 1024));
    EXPECT_TRUE(cluster.to_decode->WaitClosed());
  }
}

TEST(WorkerProcessTest, KilledSourceIsLostAtTheSink) {
  Cluster cluster("auto", {"--step-tokens=1"});
  const DecoderState state = State(1, 400);
  ASSERT_TRUE(cluster.to_prefill->Submit(state, {cluster.to_decode->AsSink()}).ok());
  ASSERT_TRUE(cluster.to_prefill->WaitFor(state.attempt,
                                          [](const auto& events) { return !events.empty(); }));
  cluster.prefill->Signal(SIGKILL);
  EXPECT_TRUE(cluster.to_decode->WaitFor(state.attempt, [](const auto& events) {
    return !events.empty() && (events.back().has_lost() || events.back().has_token());
  }));
  EXPECT_TRUE(MetricBecomes(*cluster.decode, "baton_kv_blocks{state=\"free\"}", 1024));
}

TEST(WorkerProcessTest, SigtermStopsAWorkerCleanly) {
  for (const std::string role : {"prefill", "decode"}) {
    WorkerProcess worker(role, Args());
    ASSERT_TRUE(worker.ready()) << worker.StderrText();
    ProcessRouter router(worker, kRouter);
    ASSERT_TRUE(router.Submit(State(1, 300, 200)).ok());
    worker.Signal(SIGTERM);
    EXPECT_EQ(worker.Wait(), 0) << worker.StderrText();
    EXPECT_TRUE(router.WaitClosed());
  }
}

TEST(WorkerProcessTest, WrongOptionsStopItWithOneLine) {
  const std::string model = "--model=" + TinyModelPath();
  const std::string text = testing::TempDir() + "/text.gguf";
  std::ofstream(text) << "not a model";
  const struct {
    std::vector<std::string> args;
    std::string says;
  } cases[] = {
      {{}, "--model: missing"},
      {{"--model=/nonexistent.gguf"}, "/nonexistent.gguf"},
      {{"--model=" + text}, "text.gguf"},
      {{model, "--transport=carrier-pigeon"},
       "--transport is carrier-pigeon; must be one of auto, tcp, shm"},
      {{model, "--no-such-flag=1"}, "no-such-flag"},
      {{model, "stray"}, "stray"},
      {{model, "--block-size=17"}, "block"},
      {{model, "--kv-blocks=0"}, "kv-blocks"},
      {{model, "--listen=nowhere"}, "HOST:PORT"},
      {{model, "--threads=-1"}, "threads"},
      {{model, "--lease-ms=0"}, "lease-ms"},
      {{model, "--backend=abacus"}, "abacus"},
      {{model, "--kv-type=f64"}, "kv-type"},
      {{model, "--affinity=3-1"}, "affinity"},
  };
  for (const auto& one : cases) {
    WorkerProcess worker("decode", one.args);
    EXPECT_FALSE(worker.ready());
    EXPECT_NE(worker.Wait(), 0) << one.says;
    EXPECT_NE(worker.StderrText().find(one.says), std::string::npos) << worker.StderrText();
  }
}

// Environment BATON_MODEL: one request each way on the real model.
TEST(WorkerProcessTest, RealModelSplitEqualsUnified) {
  const char* const path = std::getenv("BATON_MODEL");
  if (path == nullptr || access(path, R_OK) != 0) {
    const char* const ci = std::getenv("CI");
    if (ci != nullptr && std::string(ci) == "true") FAIL() << "BATON_MODEL names no model";
    GTEST_SKIP() << "BATON_MODEL names no model";
  }
  const std::string model = std::string("--model=") + path;
  WorkerProcess prefill("prefill", {model, "--kv-blocks=64", "--threads=1"});
  WorkerProcess decode("decode", {model, "--kv-blocks=64", "--threads=1"});
  ASSERT_TRUE(prefill.ready() && decode.ready()) << prefill.StderrText() << decode.StderrText();
  ProcessRouter to_prefill(prefill, kRouter);
  ProcessRouter to_decode(decode, kRouter);
  DecoderState split = State(1, 0, 8);
  split.prompt = {504, 3575, 282, 4649, 314};  // "The capital of France is"
  DecoderState unified = split;
  unified.attempt.request = 2;
  ASSERT_TRUE(to_decode.Submit(unified).ok());
  const std::vector<TokenId> expected = to_decode.Tokens(unified.attempt);
  ASSERT_TRUE(to_prefill.Submit(split, {to_decode.AsSink()}).ok());
  ASSERT_TRUE(to_prefill.WaitFor(split.attempt,
                                 [](const auto& events) { return !events.empty(); }));  // Started
  to_decode.Attach(split.attempt);
  EXPECT_EQ(to_decode.Tokens(split.attempt), expected);
  EXPECT_EQ(expected.size(), 8u);
}

}  // namespace
}  // namespace baton::worker
