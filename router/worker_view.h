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

namespace baton::router {

struct WorkerView {
  bool ready = false;  // its session is open and it said hello
  bool draining = false;
  bool prefill = false;  // role

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
  uint64_t queued_prefill_tokens = 0;
  uint32_t running = 0;  // choices in its batch
  std::vector<uint32_t> free_blocks;
  double prefill_tokens_per_second = 0;  // of prompts that begin; 0: not measured yet
  StepTimes step_times{};
  uint64_t decode_keys = 0;  // of `running`
  double transfer_bytes_per_second = 0;

  // This router's own.
  uint32_t prompts_in_flight = 0;  // submitted there without a first token
  uint32_t streams = 0;            // live requests it decodes or will decode
  uint32_t choices = 0;            // of those requests

  // For the whole of a prompt that is next, at a rate for its beginning: what its tokens attend to
  // grows with it.
  double PromptSeconds(uint64_t tokens, double tokens_per_second) const {
    const auto length = static_cast<double>(tokens);
    return length / tokens_per_second + step_times.prompt_key * length * length / 2;
  }
};

}  // namespace baton::router

#endif  // BATON_ROUTER_WORKER_VIEW_H_
