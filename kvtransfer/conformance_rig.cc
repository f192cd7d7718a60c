#include "kvtransfer/conformance_rig.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/clock.h"
#include "common/crc32c.h"
#include "kvtransfer/cause.h"
#include "kvtransfer/shm_transport.h"
#include "kvtransfer/shm_writer.h"
#include "kvtransfer/socket.h"
#include "kvtransfer/tcp_transport.h"
#include "kvtransfer/test_rig.h"

namespace baton::kvtransfer {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);

std::string Event(std::string_view name, const AttemptId& attempt) {
  return std::string(name) + " " + std::to_string(attempt.request);
}

std::string Event(std::string_view name, const AttemptId& attempt, Cause cause) {
  return Event(name, attempt) + " " + std::string(CauseLabel(cause));
}

std::string InlinePiece(const kv::KvArena& arena, const PieceHeader& header,
                        const std::vector<kv::BlockId>& blocks, bool damaged) {
  std::string payload;
  const auto& layers = arena.layout().layers;
  if (header.layer < layers.size() && header.arena < layers[header.layer].arenas.size()) {
    for (const kv::BlockId block : blocks) {
      const auto piece = arena.Piece(header.layer, header.arena, block);
      payload.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
  }
  payload = payload.substr(std::min<size_t>(header.offset, payload.size()));
  payload.resize(std::min<size_t>(header.length, kMaxPieceBytes));
  PieceHeader claimed = header;
  claimed.length = static_cast<uint32_t>(payload.size());
  std::string bytes = EncodePieceHead(claimed) + payload;
  // A length that does not fit the payload is the test's wish: put it back behind the prelude.
  for (int i = 0; i < 4; ++i) {
    bytes[kPieceHeadBytes - 4 + i] = static_cast<char>(header.length >> (8 * i));
  }
  return bytes + EncodeTrailer(Crc32c(AsBytes(bytes)) ^ (damaged ? 1 : 0));
}

class RawSocket : public RawPeer {
 public:
  RawSocket(UniqueFd fd, const kv::KvArena& arena) : fd_(std::move(fd)), arena_(arena) {}

  void Send(std::string bytes) override {
    if (bytes.empty()) {
      shutdown(fd_.get(), SHUT_WR);
      return;
    }
    size_t sent = 0;
    while (sent < bytes.size()) {
      pollfd ready{fd_.get(), POLLOUT, 0};
      if (poll(&ready, 1, 20000) <= 0) return;
      const ssize_t n =
          send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) return;
      sent += static_cast<size_t>(n);
    }
  }

  bool AwaitEnd() override {
    char bytes[4096];
    while (true) {
      pollfd ready{fd_.get(), POLLIN, 0};
      if (poll(&ready, 1, 20000) <= 0) return false;
      if (recv(fd_.get(), bytes, sizeof bytes, 0) <= 0) return true;
    }
  }

  std::string Piece(const PieceHeader& header, const std::vector<kv::BlockId>& blocks,
                    bool damaged) override {
    return InlinePiece(arena_, header, blocks, damaged);
  }

 protected:
  const UniqueFd fd_;
  const kv::KvArena& arena_;
};

// Lends SendStart's descriptors to a raw socket through a real writer.
class RawShm : public RawSocket {
 public:
  RawShm(UniqueFd fd, const kv::KvArena& arena, Executor& executor)
      : RawSocket(std::move(fd), arena), generations_(*ShmGenerations::Create()) {
    executor_ = &executor;
  }

  void Start() {
    LoggingSource nobody(log_);
    SendQueue queue({{"", kSourceEpoch, kSinkEpoch}, &arena_, executor_, &nobody, [] {}, nullptr});
    ShmWriter writer(arena_, *generations_);
    BATON_CHECK(writer.Start(queue).ok());
    BATON_CHECK(writer.WriteSome(fd_.get(), queue).ok());
  }

  std::string Piece(const PieceHeader& header, const std::vector<kv::BlockId>& blocks,
                    bool damaged) override {
    PieceRefFrame frame;
    frame.header = header;
    frame.blocks = blocks;
    // The trailer of the inline piece is the CRC that the reference carries.
    const std::string piece = InlinePiece(arena_, header, blocks, damaged);
    frame.crc = DecodeTrailer(std::string_view(piece).substr(piece.size() - kTrailerBytes));
    return Encode(frame);
  }

 private:
  EventLog log_;
  Executor* executor_;
  const std::unique_ptr<ShmGenerations> generations_;
};

class RawInProcess : public RawPeer {
 public:
  RawInProcess(ConformanceRig& rig, const kv::KvArena& arena) : rig_(rig), arena_(arena) {
    rig_.OnLoop([this] {
      write_ = rig_.network.ConnectRaw(rig_.listener->address(), rig_.loop,
                                       [log = log_](std::string bytes) {
                                         if (bytes.empty()) log->Add("end");
                                       });
    });
  }
  ~RawInProcess() override { Send(""); }

  void Send(std::string bytes) override {
    rig_.OnLoop([&] { write_(bytes); });
  }
  bool AwaitEnd() override { return log_->Await("end"); }
  std::string Piece(const PieceHeader& header, const std::vector<kv::BlockId>& blocks,
                    bool damaged) override {
    return InlinePiece(arena_, header, blocks, damaged);
  }

 private:
  ConformanceRig& rig_;
  const kv::KvArena& arena_;
  const std::shared_ptr<EventLog> log_ = std::make_shared<EventLog>();
  std::function<void(std::string)> write_;
};

std::unique_ptr<Transport> MakeTransport(ConformanceRig& rig, std::string name,
                                         kv::KvArena* arena) {
  if (rig.scheme == "tcp") {
    return std::make_unique<TcpTransport>(TcpTransport::Options{}, rig.loop, arena);
  }
  if (rig.scheme == "shm") {
    return std::make_unique<ShmTransport>(ShmTransport::Options{}, rig.loop, arena);
  }
  return std::make_unique<InProcessTransport>(rig.network, std::move(name), rig.loop, arena);
}

}  // namespace

void EventLog::Add(const std::string& event) {
  MutexLock lock(mutex_);
  ++counts_[event];
  changed_.NotifyAll();
}

bool EventLog::Await(const std::string& event, int times) {
  const Time deadline = SteadyNow() + kPatience;
  MutexLock lock(mutex_);
  while (counts_[event] < times) {
    if (!changed_.WaitUntil(mutex_, deadline) && SteadyNow() >= deadline) {
      return counts_[event] >= times;
    }
  }
  return true;
}

int EventLog::Count(const std::string& event) {
  MutexLock lock(mutex_);
  return counts_[event];
}

std::string EventLog::ToString() {
  MutexLock lock(mutex_);
  std::string text;
  for (const auto& entry : counts_) {
    if (entry.second > 0) text += entry.first + " x" + std::to_string(entry.second) + "; ";
  }
  return text;
}

void LoggingSink::OnFirstPiece(const AttemptId& attempt) { log_.Add(Event("first", attempt)); }
void LoggingSink::OnCommitArrived(const AttemptId& attempt, Cause problem, CommitMessage message) {
  log_.Add(Event("commit", attempt, problem) + " " + message.decoder_state);
}
void LoggingSink::OnTransferFailed(const AttemptId& attempt, Cause cause) {
  log_.Add(Event("failed", attempt, cause));
}
void LoggingSink::OnQuiesced(const AttemptId& attempt) { log_.Add(Event("quiesced", attempt)); }

void LoggingSource::OnCommitReply(const AttemptId& attempt, Cause cause) {
  log_.Add(Event("reply", attempt, cause));
}
void LoggingSource::OnTransferClosed(const AttemptId& attempt) {
  log_.Add(Event("closed", attempt));
}

ConformanceRig::ConformanceRig(const std::string& the_scheme, const kv::KvLayout& layout,
                               uint32_t blocks)
    : scheme(the_scheme), loop(EventLoop::Options{}) {
  source_arena = MakeArena(layout, blocks, /*shareable=*/true);
  sink_arena = MakeArena(layout, blocks);
  FillArena(*source_arena, 11);
  loop.Start();
  OnLoop([this] {
    table = std::make_unique<ReceiveTable>(kSinkEpoch, *sink_arena, loop, std::chrono::seconds(20));
    table->SetListener(&sink);
    table->AddSource(kSourceEpoch);
    source_transport = MakeTransport(*this, "source", source_arena.get());
    sink_transport = MakeTransport(*this, "sink", nullptr);
    listener = *sink_transport->Listen(*table);
  });
}

ConformanceRig::~ConformanceRig() {
  OnLoop([this] {
    listener.reset();
    table.reset();
  });
  loop.Stop();
}

void ConformanceRig::OnLoop(std::function<void()> task) {
  EventLog done;
  loop.Post([&] {
    task();
    done.Add("done");
  });
  BATON_CHECK(done.Await("done"));
}

std::unique_ptr<DataConnection> ConformanceRig::Connect(const Epoch& sink_epoch) {
  std::unique_ptr<DataConnection> connection;
  OnLoop([&] {
    connection = source_transport->Connect({listener->address(), kSourceEpoch, sink_epoch}, source);
  });
  return connection;
}

std::unique_ptr<RawPeer> ConformanceRig::ConnectRaw(bool greet) {
  const std::string hello = Encode(HelloFrame{kProtocolVersion, kSourceEpoch, kSinkEpoch});
  const std::string address = listener->address();
  std::unique_ptr<RawPeer> peer;
  if (scheme == "tcp") {
    peer = std::make_unique<RawSocket>(*StartConnectTcp(address.substr(4)), *source_arena);
  } else if (scheme == "shm") {
    auto shm = std::make_unique<RawShm>(*ConnectUnix(address.substr(4)), *source_arena, loop);
    if (greet) shm->Start();
    return shm;
  } else {
    peer = std::make_unique<RawInProcess>(*this, *source_arena);
  }
  if (greet) peer->Send(hello);
  return peer;
}

void ConformanceRig::Expect(uint64_t request, uint32_t first_needed, uint32_t prompt_blocks,
                            const std::vector<kv::BlockId>& blocks) {
  OnLoop([&] {
    std::vector<GrantedGroup> groups(sink_arena->layout().groups.size(),
                                     {first_needed, prompt_blocks, blocks});
    table->Expect(TestAttempt(request), kSourceEpoch, Secret(request), std::move(groups));
  });
}

std::string ConformanceRig::Open(uint64_t request) const {
  return Encode(OpenFrame{TestAttempt(request), Secret(request)});
}

PieceHeader ConformanceRig::Header(uint64_t request, uint32_t layer, uint32_t arena,
                                   uint32_t ordinal) const {
  const kv::KvLayout& layout = sink_arena->layout();
  PieceHeader header;
  header.attempt = TestAttempt(request);
  header.source_epoch = kSourceEpoch;
  header.sink_epoch = kSinkEpoch;
  header.layer = layer;
  header.group = layout.layers[layer].group;
  header.arena = arena;
  header.ordinal = ordinal;
  header.length = static_cast<uint32_t>(layout.PieceBytes(layer, arena));
  return header;
}

bool ConformanceRig::SinkUntouched() const {
  const kv::KvLayout& layout = sink_arena->layout();
  for (uint32_t layer = 0; layer < layout.layers.size(); ++layer) {
    for (uint32_t a = 0; a < layout.layers[layer].arenas.size(); ++a) {
      for (kv::BlockId b = 0; b < sink_arena->blocks(layout.layers[layer].group); ++b) {
        for (const std::byte byte : sink_arena->Piece(layer, a, b)) {
          if (byte != std::byte{0}) return false;
        }
      }
    }
  }
  return true;
}

}  // namespace baton::kvtransfer
