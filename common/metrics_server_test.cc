#include "common/metrics_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace baton {
namespace {

std::string Get(int port, const std::string& path) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return "";
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  if (::write(fd, request.data(), request.size()) < 0) return "";
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0;) {
    answer.append(buffer, static_cast<size_t>(n));
  }
  ::close(fd);
  return answer;
}

TEST(MetricsServerTest, ServesTheRegistryAtAFreePort) {
  MetricsRegistry registry;
  registry.AddCounter("baton_tokens_total", "Tokens.").Get().Increment(3);
  const auto server = MetricsServer::Start("127.0.0.1:0", registry);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_GT((*server)->port(), 0);
  const std::string answer = Get((*server)->port(), "/metrics");
  EXPECT_NE(answer.find("200 OK"), std::string::npos) << answer;
  EXPECT_NE(answer.find("baton_tokens_total 3"), std::string::npos) << answer;
}

TEST(MetricsServerTest, AnAddressThatIsTakenIsAStatusNamingIt) {
  MetricsRegistry registry;
  const auto first = MetricsServer::Start("127.0.0.1:0", registry);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = "127.0.0.1:" + std::to_string((*first)->port());
  const auto second = MetricsServer::Start(address, registry);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find(address), std::string::npos) << second.status();
}

}  // namespace
}  // namespace baton
