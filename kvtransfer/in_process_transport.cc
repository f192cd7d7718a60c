#include "kvtransfer/in_process_transport.h"

#include <deque>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "kvtransfer/frame_buffer.h"
#include "kvtransfer/receive_connection.h"
#include "kvtransfer/send_queue.h"

namespace baton::kvtransfer {
namespace {

constexpr std::string_view kPrefix = "inproc:";
// Frames on a wire beyond this wait in the queue, as behind a full socket buffer.
constexpr size_t kMaxOnWire = 8;

}  // namespace

// One direction. Frames leave in order, whatever the delays; "" is the end. Whoever reads it holds
// it by shared_ptr; the reader's callback is cleared when the reader goes.
class InProcessWire : public std::enable_shared_from_this<InProcessWire> {
 public:
  InProcessWire(const InProcessNetwork::Carrier& carrier, InProcessNetwork::Wire name, Executor& to)
      : carrier_(carrier), name_(std::move(name)), to_(to) {}

  void SetReader(std::function<void(std::string)> reader) { reader_ = std::move(reader); }
  // Called after each delivery.
  void SetWriter(std::function<void()> space) { space_ = std::move(space); }
  size_t on_wire() const { return frames_.size(); }

  void Write(std::string frame) {
    if (ended_) return;
    ended_ = frame.empty();
    frames_.push_back(std::move(frame));
    carrier_(name_, to_, frames_.back(), [self = shared_from_this()] { self->Deliver(); });
  }

 private:
  void Deliver() {
    if (frames_.empty()) return;
    std::string frame = std::move(frames_.front());
    frames_.pop_front();
    // The reader may clear itself while it runs.
    const auto reader = reader_;
    if (reader) reader(std::move(frame));
    if (space_) space_();
  }

  const InProcessNetwork::Carrier& carrier_;
  const InProcessNetwork::Wire name_;
  Executor& to_;
  std::deque<std::string> frames_;
  std::function<void(std::string)> reader_;
  std::function<void()> space_;
  bool ended_ = false;
};

using WirePtr = std::shared_ptr<InProcessWire>;

// The sink's end of one connection.
class InProcessReceiver {
 public:
  InProcessReceiver(ReceiveTable& table, Executor& executor, WirePtr in, WirePtr out,
                    std::function<void(InProcessReceiver*)> gone)
      : executor_(executor),
        in_(std::move(in)),
        out_(std::move(out)),
        gone_(std::move(gone)),
        alive_(std::make_shared<bool>(true)),
        connection_(std::make_unique<ReceiveConnection>(table, [this] { Wake(); })) {
    in_->SetReader([this](std::string frame) { OnBytes(std::move(frame)); });
  }

  ~InProcessReceiver() {
    *alive_ = false;
    in_->SetReader(nullptr);
    out_->Write("");
  }

 private:
  void Wake() {
    executor_.Post([this, alive = alive_] {
      if (*alive) Flush();
    });
  }

  void Flush() {
    if (connection_->ended()) return gone_(this);
    std::string bytes = connection_->TakeOutbox();
    if (!bytes.empty()) out_->Write(std::move(bytes));
  }

  void OnBytes(std::string bytes) {
    if (bytes.empty()) return gone_(this);
    buffer_.Append(bytes);
    const absl::Status status = ReadFrames();
    if (status.ok()) return;
    connection_->End(status);
    gone_(this);
  }

  absl::Status ReadFrames() {
    while (true) {
      const uint32_t max_body = connection_->greeted() ? kMaxBodyBytes : 64;
      BATON_ASSIGN_OR_RETURN(const auto frame, buffer_.Next(max_body));
      if (!frame.has_value()) return absl::OkStatus();
      BATON_RETURN_IF_ERROR(frame->type == FrameType::kPiece
                                ? OnPiece(*frame)
                                : connection_->OnFrame(frame->type, frame->body));
    }
  }

  absl::Status OnPiece(const FrameBuffer::Whole& frame) {
    if (!connection_->greeted()) return absl::InvalidArgumentError("piece before hello");
    const PieceHeader header = DecodePieceHeader(frame.body);
    std::string_view payload = frame.body.substr(kPieceHeaderBytes);
    if (header.length != payload.size()) {
      return absl::InvalidArgumentError("piece: length differs from the frame's");
    }
    BATON_ASSIGN_OR_RETURN(Landing landing, connection_->BeginPiece(header));
    if (connection_->Enter(landing)) {
      for (const std::span<std::byte> target : landing.targets()) {
        CopyAndCrc32c(target.data(), AsBytes(payload).data(), target.size(), 0);
        payload.remove_prefix(target.size());
      }
      connection_->Leave(landing);
    }
    using Verdict = ReceiveConnection::Verdict;
    connection_->EndPiece(landing, frame.intact     ? Verdict::kIntact
                                   : frame.given_up ? Verdict::kGivenUp
                                                    : Verdict::kDamaged);
    return absl::OkStatus();
  }

  Executor& executor_;
  const WirePtr in_;
  const WirePtr out_;
  const std::function<void(InProcessReceiver*)> gone_;
  const std::shared_ptr<bool> alive_;
  FrameBuffer buffer_;
  const std::unique_ptr<ReceiveConnection> connection_;
};

class InProcessListener : public DataListener {
 public:
  InProcessListener(InProcessNetwork& network, std::string name, Executor& executor,
                    ReceiveTable& table)
      : network_(network), name_(std::move(name)), executor_(executor), table_(table) {
    network_.listeners_[name_] = this;
  }
  ~InProcessListener() override {
    *alive_ = false;
    network_.listeners_.erase(name_);
  }

  std::string address() const override { return std::string(kPrefix) + name_; }
  const std::string& name() const { return name_; }
  Executor& executor() { return executor_; }

  void Accept(WirePtr in, WirePtr out) {
    auto gone = [this](InProcessReceiver* receiver) {
      // It is inside its own function now.
      executor_.Post([this, alive = alive_, receiver] {
        if (*alive) receivers_.erase(receiver);
      });
    };
    auto receiver = std::make_unique<InProcessReceiver>(table_, executor_, std::move(in),
                                                        std::move(out), std::move(gone));
    InProcessReceiver* const key = receiver.get();
    receivers_.emplace(key, std::move(receiver));
  }

 private:
  InProcessNetwork& network_;
  const std::string name_;
  Executor& executor_;
  ReceiveTable& table_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::map<InProcessReceiver*, std::unique_ptr<InProcessReceiver>> receivers_;  // never iterated
};

// The source's end of one connection.
class InProcessConnection : public DataConnection {
 public:
  InProcessConnection(const ConnectRequest& request, const kv::KvArena* arena, Executor& executor,
                      Listener& listener)
      : executor_(executor),
        queue_({request, arena, &executor, &listener, [this] { Wake(); }, nullptr}) {}

  ~InProcessConnection() override {
    *alive_ = false;
    if (in_ != nullptr) in_->SetReader(nullptr);
    if (out_ == nullptr) return;
    out_->SetWriter(nullptr);
    out_->Write("");
  }

  void Attach(WirePtr in, WirePtr out) {
    in_ = std::move(in);
    out_ = std::move(out);
    in_->SetReader([this](std::string bytes) { OnBytes(std::move(bytes)); });
    out_->SetWriter([this] { Wake(); });
    out_->Write(queue_.Hello());
    queue_.Connected();
  }

  void Fail(absl::Status status) {
    if (in_ != nullptr) in_->SetReader(nullptr);
    if (out_ != nullptr) out_->Write("");
    ended_ = true;
    queue_.End(std::move(status));
  }

  void Open(const AttemptId& attempt, uint64_t secret) override { queue_.Open(attempt, secret); }
  void Send(const AttemptId& attempt, const BlockRun& run) override { queue_.Send(attempt, run); }
  void Commit(const AttemptId& attempt, CommitMessage message) override {
    queue_.Commit(attempt, std::move(message));
  }
  void Close(const AttemptId& attempt) override { queue_.Close(attempt); }
  uint64_t Backlog(const AttemptId& attempt) const override { return queue_.Backlog(attempt); }

 private:
  void Wake() {
    if (std::exchange(pump_posted_, true)) return;
    executor_.Post([this, alive = alive_] {
      if (!*alive) return;
      pump_posted_ = false;
      PumpOne();
    });
  }

  // One frame a turn, so that several transfers and other work interleave.
  void PumpOne() {
    if (ended_ || out_ == nullptr || out_->on_wire() >= kMaxOnWire) return;
    const std::optional<OutFrame> frame = queue_.Next();
    if (!frame.has_value()) return;
    if (!frame->is_piece()) {
      out_->Write(frame->bytes);
    } else if (queue_.Enter(*frame)) {
      std::string bytes = Assemble(*frame, queue_.FrameCrc(*frame));
      queue_.Leave(*frame);
      out_->Write(std::move(bytes));
    }
    Wake();
  }

  static std::string Assemble(const OutFrame& frame, uint32_t crc) {
    std::string bytes = frame.bytes;
    for (const auto span : frame.payload) {
      bytes.append(reinterpret_cast<const char*>(span.data()), span.size());
    }
    return bytes + EncodeTrailer(crc);
  }

  void OnBytes(std::string bytes) {
    if (bytes.empty()) return Fail(absl::UnavailableError("the sink ended the data connection"));
    buffer_.Append(bytes);
    const absl::Status status = ReadFrames();
    if (!status.ok()) Fail(status);
    Wake();
  }

  absl::Status ReadFrames() {
    while (true) {
      BATON_ASSIGN_OR_RETURN(const auto frame, buffer_.Next());
      if (!frame.has_value()) return absl::OkStatus();
      BATON_RETURN_IF_ERROR(queue_.OnFrame(frame->type, frame->body));
    }
  }

  Executor& executor_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  WirePtr in_;
  WirePtr out_;
  FrameBuffer buffer_;
  bool pump_posted_ = false;
  bool ended_ = false;
  SendQueue queue_;
};

InProcessNetwork::InProcessNetwork()
    : InProcessNetwork([](const Wire&, Executor& to, std::string&, std::function<void()> deliver) {
        to.Post(std::move(deliver));
      }) {}

InProcessNetwork::InProcessNetwork(Carrier carrier) : carrier_(std::move(carrier)) {}

std::function<void(std::string)> InProcessNetwork::ConnectRaw(
    const std::string& address, Executor& executor, std::function<void(std::string)> on_bytes) {
  const auto it = listeners_.find(address.substr(kPrefix.size()));
  if (it == listeners_.end()) return nullptr;
  InProcessListener& peer = *it->second;
  auto forth = std::make_shared<InProcessWire>(carrier_, Wire{"raw", peer.name()}, peer.executor());
  auto back = std::make_shared<InProcessWire>(carrier_, Wire{peer.name(), "raw"}, executor);
  back->SetReader(std::move(on_bytes));
  peer.Accept(forth, std::move(back));
  return [forth](std::string bytes) { forth->Write(std::move(bytes)); };
}

InProcessTransport::InProcessTransport(InProcessNetwork& network, std::string name,
                                       Executor& executor, kv::KvArena* arena)
    : network_(network), name_(std::move(name)), executor_(executor), arena_(arena) {}

std::unique_ptr<DataConnection> InProcessTransport::Connect(const ConnectRequest& request,
                                                            DataConnection::Listener& listener) {
  auto connection = std::make_unique<InProcessConnection>(request, arena_, executor_, listener);
  const bool ours = request.address.rfind(kPrefix, 0) == 0;
  const auto it = network_.listeners_.find(ours ? request.address.substr(kPrefix.size()) : "");
  if (it == network_.listeners_.end()) {
    connection->Fail(absl::UnavailableError("nobody listens there"));
    return connection;
  }
  InProcessListener& peer = *it->second;
  using Wire = InProcessNetwork::Wire;
  auto forth =
      std::make_shared<InProcessWire>(network_.carrier_, Wire{name_, peer.name()}, peer.executor());
  auto back =
      std::make_shared<InProcessWire>(network_.carrier_, Wire{peer.name(), name_}, executor_);
  peer.Accept(forth, back);
  connection->Attach(std::move(back), std::move(forth));
  return connection;
}

absl::StatusOr<std::unique_ptr<DataListener>> InProcessTransport::Listen(ReceiveTable& table) {
  if (network_.listeners_.count(name_) != 0) {
    return absl::UnavailableError("the name is taken: " + name_);
  }
  return std::make_unique<InProcessListener>(network_, name_, executor_, table);
}

}  // namespace baton::kvtransfer
