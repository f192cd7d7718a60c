#include "router/resolver.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "common/event_loop.h"

namespace baton::router {
namespace {

using Answer = absl::StatusOr<std::vector<std::string>>;

class SystemResolverTest : public testing::Test {
 protected:
  void SetUp() override { loop_.Start(); }
  void TearDown() override { loop_.Stop(); }

  Answer Ask(const std::string& host) {
    const auto resolver = MakeSystemResolver(loop_);
    std::promise<Answer> answered;
    resolver->Resolve(host, [&](const Answer& answer) { answered.set_value(answer); });
    return answered.get_future().get();
  }

  EventLoop loop_{EventLoop::Options()};
};

TEST_F(SystemResolverTest, LocalhostIsTheLoopbackOfOneFamily) {
  const Answer answer = Ask("localhost");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(*answer == std::vector<std::string>{"127.0.0.1"} ||
              *answer == std::vector<std::string>{"::1"})
      << answer->front();
}

TEST_F(SystemResolverTest, NumbersAreThemselves) {
  EXPECT_EQ(*Ask("127.0.0.9"), std::vector<std::string>{"127.0.0.9"});
  EXPECT_EQ(*Ask("::1"), std::vector<std::string>{"::1"});
}

TEST_F(SystemResolverTest, ANameThatIsNotThereSaysWhy) {
  const Answer answer = Ask("no such name");
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(answer.status().message().empty());
}

}  // namespace
}  // namespace baton::router
