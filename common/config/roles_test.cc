#include "common/config/roles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "common/config/command_line.h"

namespace baton::config {
namespace {

const std::vector<std::string> kNames = {"up", "router", "prefill-worker", "decode-worker"};

// OK, or the refusal of these flags by that role.
absl::Status Check(const std::string& role_name, const std::vector<std::string>& flags) {
  const Role role = *FindRole(role_name);
  Settings settings(role.options);
  const absl::Status status = settings.TakeArguments(flags);
  return status.ok() ? role.check(settings) : status;
}

std::string Refusal(const std::string& role, const std::vector<std::string>& flags) {
  return std::string(Check(role, flags).message());
}

TEST(RolesTest, DefaultsAreAcceptedAsTheyArePrinted) {
  for (const std::string& name : kNames) {
    const Role role = *FindRole(name);
    const Settings defaults(role.options);
    EXPECT_TRUE(role.check(defaults).ok()) << name;
    Settings again(role.options);
    EXPECT_TRUE(again.TakeFileText("printed", defaults.ToJson()).ok()) << name;
    EXPECT_TRUE(role.check(again).ok()) << name;
    EXPECT_FALSE(Missing(role, defaults).empty()) << name;
  }
  EXPECT_FALSE(FindRole("gateway").ok());
}

TEST(RolesTest, NoNameIsInATableTwice) {
  for (const std::string& name : kNames) {
    const Role role = *FindRole(name);
    for (size_t i = 0; i < role.options.size(); ++i) {
      for (size_t j = 0; j < i; ++j) EXPECT_NE(role.options[i].name, role.options[j].name);
    }
  }
}

TEST(RolesTest, OptionsThatExcludeEachOtherAreRefused) {
  EXPECT_EQ(Refusal("up", {"--listen=127.0.0.1:80", "--port=81"}),
            "--port is 81; --listen is 127.0.0.1:80; give one of them");
  EXPECT_EQ(Refusal("up", {"--port=81", "--metrics-port=81"}),
            "--metrics-port is 81; must differ from --port");
  EXPECT_EQ(Refusal("prefill-worker", {"--kv-type=f64"}),
            "--kv-type is f64; must be auto, f16 or int8, because --backend is cpu");
  EXPECT_EQ(Refusal("prefill-worker", {"--kv-type=int8", "--backend=reference"}),
            "--kv-type is int8; must be auto or f64, because --backend is reference");
  EXPECT_EQ(Refusal("router", {"--listen=127.0.0.1:80", "--metrics-port=80"}),
            "--metrics-port is 80; must differ from the port of --listen, which is 127.0.0.1:80");
  EXPECT_EQ(Refusal("router", {"--listen=h:80", "--admin-listen=h:80"}),
            "--admin-listen is h:80; must differ from --listen");
  EXPECT_EQ(Refusal("router", {"--prefill-workers=a:1", "--decode-workers=b:1,a:1"}),
            "--decode-workers is b:1,a:1; each worker must be named once in prefill-workers and "
            "decode-workers together, not twice: a:1");
}

TEST(RolesTest, ValuesOutsideTheirLimitAreRefused) {
  EXPECT_EQ(Refusal("decode-worker", {"--block-size=48"}),
            "--block-size is 48; must be a power of two from 16 to 256");
  EXPECT_EQ(Refusal("decode-worker", {"--context=1"}), "--context is 1; must be 0 or at least 2");
  EXPECT_EQ(Refusal("decode-worker", {"--affinity=9-1"}),
            "--affinity is 9-1; must be CPUs below 1024 as in 0,2-3");
  EXPECT_EQ(Refusal("decode-worker", {"--listen=nowhere"}),
            "--listen is nowhere; must be HOST:PORT with a port from 0 to 65535");
  EXPECT_EQ(Refusal("decode-worker", {"--listen="}),
            "--listen is empty; must be HOST:PORT with a port from 0 to 65535");
  EXPECT_EQ(Refusal("decode-worker", {"--advertise=h:x"}),
            "--advertise is h:x; must be HOST or HOST:PORT");
  EXPECT_EQ(Refusal("decode-worker", {"--data-advertise=h:x"}),
            "--data-advertise is h:x; must be HOST or HOST:PORT");
  EXPECT_EQ(Refusal("decode-worker", {"--data-listen=h"}),
            "--data-listen is h; must be HOST:PORT with a port from 0 to 65535");
  EXPECT_EQ(Refusal("decode-worker", {"--listen=h:7000", "--data-listen=h:7000"}),
            "--data-listen is h:7000; must differ from --listen");
  EXPECT_EQ(Refusal("router", {"--decode-workers=a:0"}),
            "--decode-workers is a:0; a:0 must be HOST:PORT with a port from 1 to 65535");
  EXPECT_TRUE(Check("decode-worker", {"--backend=reference", "--kv-type=f64"}).ok());
  EXPECT_TRUE(Check("decode-worker", {"--backend=cpu-scalar", "--kv-type=int8"}).ok());
}

TEST(RolesTest, EverythingHandedOnIsAnOptionOfItsServer) {
  for (const auto& [role, names] :
       {std::pair{"decode-worker", HandedToWorkers()}, std::pair{"router", HandedToRouters()}}) {
    const Settings settings(FindRole(role)->options);
    for (const std::string& name : names) {
      const auto has = [&](const Option& option) { return option.name == name; };
      EXPECT_TRUE(std::any_of(settings.table().begin(), settings.table().end(), has)) << name;
    }
  }
}

CommandLine Read(const std::string& role, const std::vector<std::string>& arguments) {
  return ReadCommandLine(*FindRole(role), arguments);
}

TEST(CommandLineTest, AMissingOptionMayBeInTheFile) {
  EXPECT_EQ(Read("prefill-worker", {}).exit_code, kExitBadConfig);
  const std::string path = testing::TempDir() + "/worker.json";
  std::ofstream(path) << R"({"model": "m.gguf", "threads": 3})";
  const CommandLine read = Read("prefill-worker", {"--config", path, "--threads=2"});
  EXPECT_EQ(read.exit_code, std::nullopt);
  EXPECT_EQ(read.settings.Text("model"), "m.gguf");
  EXPECT_EQ(read.settings.Integer("threads"), 2);
  EXPECT_EQ(Read("router", {"--config", path}).exit_code, kExitBadConfig);
  std::remove(path.c_str());
}

TEST(CommandLineTest, PrintConfigPrintsWhatIsInForceAndEnds) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(Read("router", {"--print-config", "--max-queue=5"}).exit_code, 0);
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_NE(printed.find("\n  \"max-queue\": 5,\n"), std::string::npos) << printed;
  EXPECT_EQ(printed.find("print-config"), std::string::npos);
  EXPECT_EQ(Read("router", {"--print-config", "--max-queue=0"}).exit_code, kExitBadConfig);
}

}  // namespace
}  // namespace baton::config
