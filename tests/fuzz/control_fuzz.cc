// A router and a source that say anything in any order to a prefill and a decode worker, over
// control streams on virtual time: no message is worth more than a status, and when both have gone
// the workers hold nothing any more.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "baton/transfer/v1/transfer.pb.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/check.h"
#include "common/sim_executor.h"
#include "kvtransfer/in_process_transport.h"
#include "kvtransfer/sink.h"
#include "kvtransfer/source.h"
#include "kvtransfer/transport.h"
#include "proto/mapping/decoder_state.h"
#include "proto/mapping/ids.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/test_rig.h"
#include "worker/worker_options.h"

namespace baton::worker {
namespace {

constexpr Epoch kSource{7, 7};

// What the input says beside the usual fields; whatever follows a byte that makes no sense is left
// out, as a parser would refuse the message.
template <typename Message>
void Alter(FuzzInput& input, Message& message) {
  if (input.Byte() < 0xA0) return;
  Message changed = message;
  const std::string_view bytes = input.ShortText();
  Message extra;
  if (!extra.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  changed.MergeFrom(extra);
  message = std::move(changed);
}

RigWorker::Options OptionsOf(v1::Role role, const char* name, uint64_t number) {
  RigWorker::Options options;
  options.role = role;
  options.name = name;
  options.number = number;
  options.blocks = 16;
  return options;
}

class World : private kvtransfer::SourceStream::Listener {
 public:
  explicit World(FuzzInput& input) : input_(input) {}

  void Run() {
    for (int steps = 0; !input_.empty() && steps < 64; ++steps) Step();
    Leave(0);
    Leave(1);
    source_.reset();
    world_.RunFor(std::chrono::seconds(60));
    for (const RigWorker* worker : {&prefill_, &decode_}) {
      BATON_CHECK(worker->core->idle());
      BATON_CHECK(worker->all_free());
      BATON_CHECK(worker->core->pool().CheckIntegrity().ok());
    }
    // The prefill worker keeps its session with the sink.
    BATON_CHECK(decode_.decode->sink().live() == 0 && decode_.decode->sink().sessions() <= 1);
    BATON_CHECK(decode_.table->live() == 0);
  }

 private:
  void Step() {
    switch (input_.Below(8)) {
      case 0:
      case 1:
        TellWorker();
        break;
      case 2:
      case 3:
        Submit();
        break;
      case 4:
      case 5:
        TellSink();
        break;
      case 6:
        world_.RunFor(std::chrono::milliseconds(input_.Byte() * 5));
        break;
      default:
        HangUp();
    }
    world_.RunFor(Duration{0});
  }

  RigWorker& AnyWorker(uint32_t index) { return index == 0 ? prefill_ : decode_; }
  AttemptId AnyAttempt() {
    const uint8_t byte = input_.Byte();
    const Epoch router = byte >= 0xF0 ? Epoch{3, 3} : kTestRouter;
    return {router, 1u + byte % 3, 1u + byte / 3 % 2};
  }

  void TellWorker() {
    const uint32_t index = input_.Below(2);
    v1::SessionRequest message;
    switch (input_.Below(4)) {
      case 0:
        proto::Set(kTestRouter, *message.mutable_hello()->mutable_router_epoch());
        message.mutable_hello()->set_session_number(1);
        message.mutable_hello()->set_protocol_version(kProtocolVersion);
        break;
      case 1:
        message.mutable_heartbeat();
        break;
      case 2:
        proto::Set(AnyAttempt(), *message.mutable_attach()->mutable_attempt());
        break;
      default:
        proto::Set(AnyAttempt(), *message.mutable_cancel()->mutable_attempt());
    }
    Alter(input_, message);
    auto& router = routers_[index];
    if (router != nullptr && router->closed.has_value()) Leave(index);
    if (router == nullptr) {
      router = std::make_unique<RigSession>(world_, AnyWorker(index), kTestRouter, 1,
                                            /*say_hello=*/false);
    }
    router->Send(message);
  }

  void Submit() {
    RigWorker& worker = AnyWorker(input_.Below(2));
    DecoderState state;
    state.attempt = AnyAttempt();
    state.stop.max_tokens = 1 + input_.Below(32);
    state.prompt.resize(1 + input_.Below(64), 5);
    const uint8_t shape = input_.Byte();
    state.choices.resize(1 + shape % 3);
    if (shape >= 0xC0) state.choices[0].tokens.resize(input_.Below(8), 6);
    v1::SubmitRequest request;
    *request.mutable_state() = proto::ToProto(state);
    request.set_session_number(1);
    proto::Set(worker.core->options().epoch, *request.mutable_worker_epoch());
    if (input_.Below(2) != 0) *request.add_sinks() = decode_.AsSink();
    Alter(input_, request);
    const absl::Status status = worker.core->Submit(request);
    BATON_CHECK(status.ok() || !status.message().empty());
    BATON_CHECK(!absl::IsInternal(status) && !absl::IsUnknown(status));
  }

  void TellSink() {
    transfer::v1::SessionRequest message;
    const WorkerOptions& options = decode_.core->options();
    switch (input_.Below(4)) {
      case 0: {
        transfer::v1::SourceHello& hello = *message.mutable_hello();
        proto::Set(kSource, *hello.mutable_source_epoch());
        proto::Set(options.epoch, *hello.mutable_sink_epoch());
        hello.set_protocol_version(kvtransfer::kProtocolVersion);
        proto::Set(options.layout_fp, *hello.mutable_layout_fp());
        proto::Set(options.numerics_id, *hello.mutable_numerics_id());
        break;
      }
      case 1: {
        transfer::v1::Reserve& reserve = *message.mutable_reserve();
        proto::Set(AnyAttempt(), *reserve.mutable_attempt());
        for (uint32_t count = 1 + input_.Below(64); count > 0; --count) reserve.add_prompt(5);
        reserve.set_n(1 + static_cast<uint32_t>(reserve.prompt_size()) % 3);
        reserve.set_max_tokens(1 + input_.Below(32));
        proto::Set(options.layout_fp, *reserve.mutable_layout_fp());
        proto::Set(options.numerics_id, *reserve.mutable_numerics_id());
        break;
      }
      case 2:
        proto::Set(AnyAttempt(), *message.mutable_release()->mutable_attempt());
        break;
      default:
        message.mutable_heartbeat();
    }
    Alter(input_, message);
    if (source_ == nullptr) source_ = dialer_.Dial(options.transfer_address, *this);
    source_->Send(message);
  }

  // The worker is still to hear of it through the session.
  void Leave(uint32_t index) {
    if (routers_[index] == nullptr) return;
    routers_[index]->Crash();
    gone_.push_back(std::move(routers_[index]));
  }

  void HangUp() {
    switch (input_.Below(3)) {
      case 0:
        return Leave(0);
      case 1:
        return Leave(1);
      default:
        source_.reset();
    }
  }

  void OnMessage(transfer::v1::SessionResponse) override {}
  void OnClosed(absl::Status) override { source_.reset(); }

  FuzzInput& input_;
  SimWorld world_;
  kvtransfer::InProcessNetwork network_;
  RigSinks sinks_;
  RigWorker prefill_{world_, network_, sinks_, OptionsOf(v1::ROLE_PREFILL, "prefill", 1)};
  RigWorker decode_{world_, network_, sinks_, OptionsOf(v1::ROLE_DECODE, "decode", 2)};
  SimExecutor executor_{world_, "source"};
  RigDialer dialer_{executor_, sinks_};
  std::unique_ptr<RigSession> routers_[2];  // with the prefill and the decode worker
  std::vector<std::unique_ptr<RigSession>> gone_;
  std::unique_ptr<kvtransfer::SourceStream> source_;
};

}  // namespace
}  // namespace baton::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::FuzzInput input(data, size);
  baton::worker::World(input).Run();
  return 0;
}
