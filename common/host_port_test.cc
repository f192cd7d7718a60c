#include "common/host_port.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(HostPortTest, TakesNamesAddressesAndBrackets) {
  EXPECT_EQ(ParseHostPort("worker.ns.svc:80")->host, "worker.ns.svc");
  EXPECT_EQ(ParseHostPort("[::1]:65535")->host, "::1");
  EXPECT_EQ(ParseHostPort("[::1]:65535")->port, 65535);
  EXPECT_EQ(ParseHostPort("127.0.0.1:0")->port, 0);
}

TEST(HostPortTest, RefusesEverythingElse) {
  for (const char* text : {"", "host", "host:", ":80", "host:-1", "host:65536", "host:8x", "::1:80",
                           "a:b:80", "[]:80", "host:99999999999"}) {
    EXPECT_FALSE(ParseHostPort(text).ok()) << text;
  }
}

TEST(HostPortTest, JoinsWhatItParses) {
  EXPECT_EQ(JoinHostPort("::1", 80), "[::1]:80");
  EXPECT_EQ(JoinHostPort("host", 80), "host:80");
}

TEST(HostPortTest, AdvertisesTheBoundPortWhereNoneIsNamed) {
  EXPECT_EQ(*AdvertisedAddress("", "127.0.0.1", 80), "127.0.0.1:80");
  EXPECT_EQ(*AdvertisedAddress("name", "127.0.0.1", 80), "name:80");
  EXPECT_EQ(*AdvertisedAddress("name:81", "127.0.0.1", 80), "name:81");
  EXPECT_FALSE(AdvertisedAddress("name:x", "127.0.0.1", 80).ok());
}

}  // namespace
}  // namespace baton
