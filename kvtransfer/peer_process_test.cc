// A sink in another process that is stopped or killed: the source never blocks, and nothing is
// left.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "kvtransfer/conformance_rig.h"
#include "kvtransfer/socket.h"
#include "kvtransfer/test_rig.h"

namespace baton::kvtransfer {
namespace {

// More than a credit window and every socket buffer on the way.
kv::KvLayout LargeLayout() {
  kv::KvLayout layout;
  layout.block_size = 64;
  layout.groups = {{0}};
  const kv::KvArenaSpec spec{kv::KvDtype::kF32, kv::KvOrder::kHeadSlotDim, 16, 256};  // 1 MiB
  layout.layers = {{0, {spec, spec}}, {0, {spec, spec}}};
  return layout;
}

constexpr uint32_t kBlocks = 8;

// Runs in the child until it is killed: a sink that expects transfers 1 to 3.
void ServeAsChild(const std::string& scheme, int address_pipe) {
  ConformanceRig rig(scheme, LargeLayout(), kBlocks);
  rig.Expect(1, 0, kBlocks, {0, 1, 2, 3, 4, 5, 6, 7});
  const std::string address = rig.listener->address() + "\n";
  if (write(address_pipe, address.data(), address.size()) < 0) _exit(1);
  while (true) pause();
}

class PeerProcess : public testing::TestWithParam<const char*> {
 protected:
  // Before this process has any thread of its own.
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      close(ends[0]);
      ServeAsChild(GetParam(), ends[1]);
    }
    close(ends[1]);
    for (char c; read(ends[0], &c, 1) == 1 && c != '\n';) address_ += c;
    close(ends[0]);
    rig_ = std::make_unique<ConformanceRig>(GetParam(), LargeLayout(), kBlocks);
  }
  void TearDown() override {
    rig_->OnLoop([&] { connection_.reset(); });
    Kill();
  }

  void Kill() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  void Connect() {
    rig_->OnLoop([&] {
      connection_ =
          rig_->source_transport->Connect({address_, kSourceEpoch, kSinkEpoch}, rig_->source);
    });
    ASSERT_TRUE(rig_->log.Await("connected"));
  }
  void SendAll() {
    rig_->OnLoop([&] {
      connection_->Open(TestAttempt(1), rig_->Secret(1));
      for (uint32_t layer = 0; layer < 2; ++layer) {
        connection_->Send(TestAttempt(1), {layer, 0, {0, 1, 2, 3, 4, 5, 6, 7}});
      }
    });
  }

  pid_t child_ = 0;
  std::string address_;
  std::unique_ptr<ConformanceRig> rig_;
  std::unique_ptr<DataConnection> connection_;
};

TEST_P(PeerProcess, AStoppedSinkDoesNotHoldTheSourcesBlocks) {
  Connect();
  kill(child_, SIGSTOP);
  SendAll();
  rig_->OnLoop([&] { connection_->Close(TestAttempt(1)); });
  EXPECT_TRUE(rig_->log.Await("closed 1"));
  // Nor does it hold up the end of the connection.
  rig_->OnLoop([&] { connection_.reset(); });
  EXPECT_EQ(rig_->log.Count("ended"), 0);
}

TEST_P(PeerProcess, AKilledSinkEndsTheConnectionAndLeavesNothing) {
  Connect();
  SendAll();
  Kill();
  EXPECT_TRUE(rig_->log.Await("ended"));
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    EXPECT_EQ(line.find(address_.substr(4)), std::string::npos) << line;
  }
  if (std::string(GetParam()) == "shm") {
    EXPECT_TRUE(ListenUnix(address_.substr(4)).ok());  // the name is free again
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, PeerProcess, testing::Values("shm", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace baton::kvtransfer
