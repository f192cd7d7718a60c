// What is known about one request of a benchmark when it has ended.
#ifndef BATON_CLIENT_BENCH_RECORD_H_
#define BATON_CLIENT_BENCH_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/time.h"

namespace baton::client {

struct RequestRecord {
  Time scheduled;  // when it had to start: in a closed loop, when it was sent
  Time sent;
  std::optional<Time> first_token;
  Time ended;
  uint32_t prompt_tokens = 0;
  uint32_t wanted_tokens = 0;
  uint32_t tokens = 0;
  // Seconds between one token and the next; a message of k tokens counts as k equal gaps.
  std::vector<float> gaps;
  // Empty: it has all its tokens. Else the code of its status, or "SHORT_ANSWER".
  std::string error;
};

}  // namespace baton::client

#endif  // BATON_CLIENT_BENCH_RECORD_H_
