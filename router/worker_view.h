// A worker as placement sees it: what it said in its hello and last load report, and what this
// router has done since.
#ifndef BATON_ROUTER_WORKER_VIEW_H_
#define BATON_ROUTER_WORKER_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/step_times.h"
#include "common/time.h"

namespace baton::router {

struct WorkerView {
  bool ready = false;  // its session is open and it said hello
  bool draining = false;
  bool prefill = false;  // role
  bool shunned = false;  // it fails requests (circuit_breaker.h)

  // Identity, fixed for one session.
  Epoch epoch;
  std::string name;
  std::string model;
  Digest numerics_id;
  Digest layout_fp;
  uint32_t block_size = 0;
  std::vector<uint32_t> pool_blocks;  // per KV group
  uint32_t context_length = 0;
  std::string transfer_address;

  // Load: the last report plus this router's later Submits.
  uint64_t queued_prefill_tokens = 0;  // that have to be computed
  uint32_t running = 0;                // choices in its batch
  std::vector<uint32_t> free_blocks;
  double prefill_tokens_per_second = 0;  // of prompts that begin; 0: not measured yet
  uint64_t prompt_steps = 0;             // that this rests on
  StepTimes step_times{};
  uint64_t decode_keys = 0;  // of `running`
  double transfer_bytes_per_second = 0;

  // This router's own.
  uint32_t prompts_in_flight = 0;     // submitted there without a first token
  uint64_t new_tokens_in_flight = 0;  // of those, tokens that it was not thought to hold
  Time last_prompt{};                 // when the latest was submitted
  uint32_t streams = 0;               // live requests it decodes or will decode
  uint32_t choices = 0;               // of those requests

  // For the tokens of a prompt from `begin` to `end` when it is next, at a rate for its beginning:
  // what its tokens attend to grows with it.
  double PromptSeconds(uint64_t begin, uint64_t end, double tokens_per_second) const {
    const auto from = static_cast<double>(begin);
    const auto to = static_cast<double>(end);
    return (to - from) / tokens_per_second + step_times.prompt_key * (to * to - from * from) / 2;
  }
};

}  // namespace baton::router

#endif  // BATON_ROUTER_WORKER_VIEW_H_
