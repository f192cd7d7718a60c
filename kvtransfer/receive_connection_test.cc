#include "kvtransfer/receive_connection.h"

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/ids.h"
#include "common/sim_executor.h"
#include "common/time.h"
#include "gtest/gtest.h"
#include "kv/arena.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/test_rig.h"

namespace baton::kvtransfer {
namespace {

constexpr Epoch kSource{1, 2}, kOtherSource{3, 4}, kSink{5, 6};

class ReceiveConnectionTest : public testing::Test {
 protected:
  ReceiveConnectionTest() {
    table_->AddSource(kSource);
    table_->AddSource(kOtherSource);
  }

  std::unique_ptr<ReceiveConnection> Connect() {
    return std::make_unique<ReceiveConnection>(*table_, [] {});
  }

  static absl::Status Hello(ReceiveConnection& connection, const Epoch& source = kSource) {
    const std::string frame = Encode(HelloFrame{kProtocolVersion, source, kSink});
    const size_t length = frame.size() - kPreludeBytes - kTrailerBytes;
    return connection.OnFrame(FrameType::kHello,
                              std::string_view(frame).substr(kPreludeBytes, length));
  }

  SimWorld world_;
  SimExecutor executor_{world_, "sink"};
  std::unique_ptr<kv::KvArena> arena_ = MakeArena(SmallLayout(), 4);
  std::unique_ptr<ReceiveTable> table_ =
      std::make_unique<ReceiveTable>(kSink, *arena_, executor_, std::chrono::seconds(20));
};

TEST_F(ReceiveConnectionTest, ANewerConnectionEndsTheOlderOneOfItsSourceAlone) {
  const auto other = Connect(), first = Connect(), second = Connect();
  ASSERT_TRUE(Hello(*other, kOtherSource).ok());
  ASSERT_TRUE(Hello(*first).ok());
  EXPECT_FALSE(first->ended());
  ASSERT_TRUE(Hello(*second).ok());
  EXPECT_TRUE(first->ended());
  EXPECT_FALSE(second->ended());
  EXPECT_FALSE(other->ended());
}

// Both were waiting while this process stood still, and their threads race for the mutex.
TEST_F(ReceiveConnectionTest, TheLateHelloOfAnOlderConnectionIsRefused) {
  const auto first = Connect(), second = Connect();
  ASSERT_TRUE(Hello(*second).ok());
  EXPECT_EQ(Hello(*first).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(first->greeted());
  EXPECT_FALSE(second->ended());
}

}  // namespace
}  // namespace baton::kvtransfer
