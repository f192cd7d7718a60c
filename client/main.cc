#include <iostream>
#include <string>
#include <vector>

#include "client/bench/bench.h"
#include "client/chat.h"
#include "client/check_config.h"
#include "client/generate.h"
#include "client/up.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + (argc < 2 ? argc : 2), argv + argc);
  const std::string command = argc < 2 ? "" : argv[1];
  if (command == "up") return baton::client::Up(argv[0], args);
  if (command == "generate") return baton::client::Generate(args);
  if (command == "bench") return baton::client::Bench(args);
  if (command == "chat") return baton::client::Chat(args);
  if (command == "check-config") return baton::client::CheckConfig(args);
  const bool asked = command == "help" || command == "--help";
  (asked ? std::cout : std::cerr) << baton::client::kUpUsage << baton::client::kGenerateUsage
                                  << baton::client::kChatUsage << baton::client::kBenchUsage
                                  << baton::client::kCheckConfigUsage;
  return asked ? 0 : 2;
}
