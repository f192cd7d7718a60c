// From Reserve to Commit between two processes, with the piece shapes of a real model, beside a
// single-thread memcpy of the same pieces in the same run. One JSON row a line. The row of bare TCP
// says what the kernel's loopback alone leaves of that memcpy.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "common/check.h"
#include "common/event_loop.h"
#include "common/hash.h"
#include "common/random.h"
#include "kv/arena.h"
#include "kvtransfer/bare_tcp.h"
#include "kvtransfer/bench_stream.h"
#include "kvtransfer/shm_transport.h"
#include "kvtransfer/sink.h"
#include "kvtransfer/source.h"
#include "kvtransfer/tcp_transport.h"

ABSL_FLAG(uint32_t, layers, 30, "layers of the model");
ABSL_FLAG(uint32_t, kv_heads, 3, "key-value heads");
ABSL_FLAG(uint32_t, head_dim, 64, "elements of a head");
ABSL_FLAG(uint32_t, block_size, 16, "positions of a block");
ABSL_FLAG(uint32_t, tokens, 1000, "tokens of the prompt");
ABSL_FLAG(uint32_t, rounds, 31, "turns of each");
ABSL_FLAG(std::string, transport, "", "shm, tcp or bare_tcp; empty: all");

namespace baton::kvtransfer {
namespace {

using nlohmann::json;

constexpr Epoch kSourceEpoch{1, 1};
constexpr Epoch kSinkEpoch{2, 2};
// Copies and transfers take turns over different prompts, so that neither finds in the caches what
// the other has just read: four prompts and their targets are six times a cache of 32 MiB.
constexpr uint32_t kPrompts = 4;

kv::KvLayout Layout() {
  kv::UniformKvShape shape{absl::GetFlag(FLAGS_layers), absl::GetFlag(FLAGS_kv_heads),
                           absl::GetFlag(FLAGS_head_dim), absl::GetFlag(FLAGS_block_size)};
  return kv::MakeUniformLayout(shape, kv::KvDtype::kF16, kv::KvOrder::kHeadDimSlot,
                               kv::KvOrder::kHeadSlotDim);
}

uint32_t PromptBlocks() {
  const uint32_t size = absl::GetFlag(FLAGS_block_size);
  return (absl::GetFlag(FLAGS_tokens) + size - 1) / size;
}

// The source's: shareable, and with sealed pieces, as the model runner of a prefill worker leaves
// them.
std::unique_ptr<kv::KvArena> MakeArena(bool of_source) {
  kv::KvArena::Options options;
  options.blocks = {PromptBlocks() * kPrompts};
  options.shareable = of_source;
  options.sealed = of_source;
  auto arena = kv::KvArena::Create(Layout(), options);
  BATON_CHECK(arena.ok());
  // Every page is there before anything is measured.
  for (uint32_t layer = 0; layer < Layout().layers.size(); ++layer) {
    for (uint32_t a = 0; a < 2; ++a) {
      for (kv::BlockId block = 0; block < options.blocks[0]; ++block) {
        const auto piece = (*arena)->Piece(layer, a, block);
        std::memset(piece.data(), static_cast<int>(layer + block + 1), piece.size());
      }
    }
    for (kv::BlockId block = 0; of_source && block < options.blocks[0]; ++block) {
      (*arena)->seals()->Seal((*arena)->view(), layer, block);
    }
  }
  return *std::move(arena);
}

// The blocks of a round are scattered over the arena, as after hours of service.
std::vector<kv::BlockId> BlocksOf(uint32_t round) {
  std::vector<kv::BlockId> blocks;
  const uint32_t total = PromptBlocks() * kPrompts;
  for (uint32_t i = 0; i < PromptBlocks(); ++i) {
    blocks.push_back((i * kPrompts + round % kPrompts) * 7 % total);
  }
  return blocks;
}

uint64_t PromptBytes() { return PromptBlocks() * Layout().BlockBytes(0); }

std::vector<std::span<std::byte>> PiecesOf(kv::KvArena& arena, uint32_t round) {
  std::vector<std::span<std::byte>> pieces;
  const std::vector<kv::BlockId> blocks = BlocksOf(round);
  for (uint32_t layer = 0; layer < Layout().layers.size(); ++layer) {
    for (uint32_t a = 0; a < 2; ++a) {
      for (const kv::BlockId block : blocks) pieces.push_back(arena.Piece(layer, a, block));
    }
  }
  return pieces;
}

class SinkProcess : public TransferSink::Host {
 public:
  SinkProcess(const std::string& scheme, UniqueFd control)
      : arena_(MakeArena(false)),
        tombstones_(loop_, std::chrono::seconds(20)),
        table_(kSinkEpoch, *arena_, loop_, std::chrono::seconds(20)),
        shm_({}, loop_, nullptr),
        tcp_({}, loop_, nullptr) {
    Transport& transport = scheme == "shm" ? static_cast<Transport&>(shm_) : tcp_;
    listener_ = *transport.Listen(table_);
    TransferSink::Options options;
    options.epoch = kSinkEpoch;
    options.vocab_size = 1u << 17;
    options.context_length = absl::GetFlag(FLAGS_tokens) * 2;
    options.block_size = absl::GetFlag(FLAGS_block_size);
    options.data_addresses = {listener_->address()};
    sink_ = std::make_unique<TransferSink>(options, loop_, table_, tombstones_, random_, *this,
                                           nullptr);
    loop_.Start();
    auto socket = std::make_shared<UniqueFd>(std::move(control));
    loop_.Post([this, socket] {
      using Pipe = BenchStream<transfer::v1::SessionResponse, transfer::v1::SessionRequest>;
      sink_->Accept([&](SinkStream::Listener& listener) {
        return std::make_unique<Pipe>(std::move(*socket), loop_, listener);
      });
      Watch();
    });
  }
  ~SinkProcess() override {
    std::promise<void> done;
    loop_.Post([&] {
      watch_.Cancel();
      listener_.reset();
      sink_.reset();
      done.set_value();
    });
    done.get_future().wait();
    loop_.Stop();
  }

  // Returns when its control socket has ended.
  void AwaitEnd() { ended_.get_future().wait(); }

 private:
  void Watch() {
    if (sink_->sessions() == 0) return ended_.set_value();
    watch_ = loop_.PostAfter(std::chrono::milliseconds(20), [this] { Watch(); });
  }

  void OnReserve(const AttemptId& attempt, Reservation) override {
    sink_->Grant(attempt, {{0, BlocksOf(static_cast<uint32_t>(attempt.request) + 1)}});
  }
  void OnDropped(const AttemptId&, Cause) override {}
  void OnQuiesced(const AttemptId&) override {}
  Cause OnCommit(const AttemptId&, std::string) override { return worker::v1::CAUSE_UNSPECIFIED; }

  EventLoop loop_{EventLoop::Options{}};
  std::unique_ptr<kv::KvArena> arena_;
  Tombstones tombstones_;
  ReceiveTable table_;
  ShmTransport shm_;
  TcpTransport tcp_;
  std::unique_ptr<DataListener> listener_;
  OsRandom random_;
  std::unique_ptr<TransferSink> sink_;
  TimerHandle watch_;
  std::promise<void> ended_;
};

class SourceProcess : public TransferSource::Host, public SinkDialer {
 public:
  SourceProcess(UniqueFd control)
      : control_(std::move(control)),
        arena_(MakeArena(true)),
        shm_({}, loop_, arena_.get()),
        tcp_({}, loop_, arena_.get()) {
    for (uint32_t i = 0; i < absl::GetFlag(FLAGS_tokens); ++i) {
      request_.prompt.push_back(static_cast<TokenId>(i));
    }
    request_.max_tokens = 1;
    TransferSource::Options options;
    options.epoch = kSourceEpoch;
    options.layout = Layout();
    source_ = std::make_unique<TransferSource>(
        options, loop_, *this, std::vector<Transport*>{&shm_, &tcp_}, *this, nullptr);
    loop_.Start();
  }
  ~SourceProcess() override {
    std::promise<void> done;
    loop_.Post([&] {
      source_.reset();
      done.set_value();
    });
    done.get_future().wait();
    loop_.Stop();
  }

  // Reserve until committed, in seconds.
  double Transfer(uint32_t round) {
    done_ = std::promise<TransferEnd>();
    const auto start = std::chrono::steady_clock::now();
    loop_.Post([&] { source_->Reserve({{9, 9}, round, 1}, {"sink", kSinkEpoch}, request_); });
    const TransferEnd end = done_.get_future().get();
    const auto stop = std::chrono::steady_clock::now();
    BATON_CHECK(end.outcome == Outcome::kCommitted && end.bytes == PromptBytes());
    return std::chrono::duration<double>(stop - start).count();
  }

  kv::KvArena& arena() { return *arena_; }

 private:
  std::unique_ptr<SourceStream> Dial(const std::string&,
                                     SourceStream::Listener& listener) override {
    using Pipe = BenchStream<transfer::v1::SessionRequest, transfer::v1::SessionResponse>;
    return std::make_unique<Pipe>(std::move(control_), loop_, listener);
  }
  void OnGranted(const AttemptId& attempt, const std::vector<uint32_t>&) override {
    const BlockRun run{0, 0, BlocksOf(static_cast<uint32_t>(attempt.request))};
    for (uint32_t layer = 0; layer < Layout().layers.size(); ++layer) {
      source_->Ship(attempt, {layer, 0, run.blocks});
    }
    source_->Commit(attempt, {TokenChainHash(request_.prompt), "state"});
  }
  void OnWaiting(const AttemptId&) override {}
  void OnEnded(const AttemptId&, const TransferEnd& end) override { done_.set_value(end); }

  UniqueFd control_;
  EventLoop loop_{EventLoop::Options{}};
  std::unique_ptr<kv::KvArena> arena_;
  ShmTransport shm_;
  TcpTransport tcp_;
  ReserveRequest request_;
  std::unique_ptr<TransferSource> source_;
  std::promise<TransferEnd> done_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// `copy` and `transfer` take a round and return seconds.
void Measure(const std::string& scheme, std::optional<double> bound,
             const std::function<double(uint32_t)>& copy,
             const std::function<double(uint32_t)>& transfer) {
  for (uint32_t warm = 0; warm < kPrompts; ++warm) {
    transfer(1000 + warm);
    copy(warm);
  }
  const auto bytes = static_cast<double>(PromptBytes());
  std::vector<double> rates, memcpy_rates, ratios, totals;
  for (uint32_t round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    const double copied = copy(2 * round);
    const double total = transfer(2 * round + 1);
    totals.push_back(total);
    rates.push_back(bytes / total);
    memcpy_rates.push_back(bytes / copied);
    ratios.push_back(copied / total);
  }
  json row = {{"name", "transfer_" + scheme + "_" + std::to_string(absl::GetFlag(FLAGS_tokens)) +
                           "_tokens"},
              {"value", Median(rates)},
              {"unit", "bytes/s"},
              {"seconds", Median(totals)},
              {"seconds_min", *std::min_element(totals.begin(), totals.end())},
              {"bytes", PromptBytes()},
              {"peer", "memcpy of the same pieces by one thread"},
              {"peer_value", Median(memcpy_rates)},
              {"ratio", Median(ratios)},
              {"ratio_min", *std::min_element(ratios.begin(), ratios.end())},
              {"ratio_max", *std::max_element(ratios.begin(), ratios.end())}};
  if (bound.has_value()) {
    row["bound"] = *bound;
    row["pass"] = Median(ratios) >= *bound;
  }
  std::cout << row.dump() << std::endl;
}

// The copy of the pieces of one prompt into another's place, by this thread, in seconds.
class Memcpy {
 public:
  explicit Memcpy(kv::KvArena& from) : from_(from), to_(MakeArena(false)) {}

  double operator()(uint32_t round) {
    const auto from = PiecesOf(from_, round);
    const auto to = PiecesOf(*to_, round + 1);
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < from.size(); ++i) {
      std::memcpy(to[i].data(), from[i].data(), from[i].size());
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  kv::KvArena& from_;
  std::unique_ptr<kv::KvArena> to_;
};

// Runs `sink` in a process of its own, started while this one has no threads, then `source` here.
void Pair(const std::function<void()>& sink, const std::function<void()>& source) {
  const pid_t pid = fork();
  BATON_CHECK(pid >= 0);
  if (pid == 0) {
    sink();
    _exit(0);
  }
  source();
  int status = 0;
  waitpid(pid, &status, 0);
  BATON_CHECK(status == 0);
}

void MeasureTransport(const std::string& scheme, double bound) {
  int control[2];
  BATON_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) == 0);
  UniqueFd ours(control[0]);
  UniqueFd theirs(control[1]);
  const auto sink = [&] {
    const UniqueFd unused = std::move(ours);
    SinkProcess(scheme, std::move(theirs)).AwaitEnd();
  };
  Pair(sink, [&] {
    const UniqueFd unused = std::move(theirs);
    SourceProcess source(std::move(ours));
    Memcpy copy(source.arena());
    Measure(scheme, bound, std::ref(copy), [&](uint32_t round) { return source.Transfer(round); });
  });
}

void MeasureBareTcp() {
  const UniqueFd listener = ListenBare();
  const auto sink = [&] {
    const auto arena = MakeArena(false);
    ReceiveBare(AcceptBare(listener), [&](uint32_t round) { return PiecesOf(*arena, round); });
  };
  Pair(sink, [&] {
    const auto arena = MakeArena(true);
    Memcpy copy(*arena);
    BareSender sender(ConnectBare(listener));
    Measure("bare_tcp", std::nullopt, std::ref(copy), [&](uint32_t round) {
      const auto pieces = PiecesOf(*arena, round);
      const auto start = std::chrono::steady_clock::now();
      sender.Send({pieces.begin(), pieces.end()});
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    });
  });
}

void RunAll() {
  const std::string only = absl::GetFlag(FLAGS_transport);
  if (only.empty() || only == "shm") MeasureTransport("shm", 0.5);
  if (only.empty() || only == "tcp") MeasureTransport("tcp", 0.25);
  if (only.empty() || only == "bare_tcp") MeasureBareTcp();
}

}  // namespace
}  // namespace baton::kvtransfer

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  baton::kvtransfer::RunAll();
}
