#ifndef BATON_WORKER_WORKER_OPTIONS_H_
#define BATON_WORKER_WORKER_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/cores.h"
#include "common/ids.h"
#include "common/time.h"
#include "kv/layout.h"

namespace baton::worker {

// Version of the router-worker protocol.
inline constexpr uint32_t kProtocolVersion = 1;

// A step of prompts is planned to last at most so long when step_tokens is 0: a request that joins,
// or is cancelled, waits for its end.
inline constexpr Duration kPlannedStep = std::chrono::milliseconds(250);
// And holds at most so many tokens: more make no step faster per token, and every activation of the
// model has room for them.
inline constexpr uint32_t kMostPlannedTokens = 512;

// What a worker is, in both roles: filled by main from flags and the loaded model.
struct WorkerOptions {
  // 128 random bits of this process.
  Epoch epoch;
  std::string name;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  // Where sources open transfer sessions to this worker; told to routers.
  std::string transfer_address;

  // Of the loaded model.
  std::string model;
  Digest numerics_id;
  Digest layout_fp;
  Digest vocab_hash;
  uint32_t vocab_size = 0;
  uint32_t context_length = 0;

  // KV memory: blocks per group of the layout.
  kv::KvLayout layout;
  std::vector<uint32_t> pool_blocks;

  // Those that the engine's steps run on.
  Cores cores;

  // Most tokens of a step; 0: as many as kPlannedStep and kMostPlannedTokens allow.
  uint32_t step_tokens = 0;
  uint32_t most_step_tokens() const { return step_tokens == 0 ? kMostPlannedTokens : step_tokens; }
  uint32_t max_running = 64;
  // Finished KV blocks are kept and found again by later prompts that begin alike. Off, whatever
  // stands here, when a group of the layout has a window: what slid out cannot be found.
  bool prefix_cache = true;
  // Attempts that have not started; beyond them Submit is RESOURCE_EXHAUSTED.
  uint32_t max_queue = 1024;

  Duration heartbeat = std::chrono::seconds(1);
  // A router or peer that is silent for so long is lost; kept events wait no longer for Attach.
  Duration lease = std::chrono::seconds(10);
  // How long a source lets one request look for room at its sinks, all of them together.
  Duration reserve_patience = std::chrono::seconds(5);

  // For tests that count the cells of the state tables of "prefill", "decode", "source" and "sink";
  // called before each move.
  std::function<void(std::string_view machine, std::string_view state, std::string_view event)>
      on_event;

  // INVALID_ARGUMENT naming the option.
  absl::Status Validate() const;
};

}  // namespace baton::worker

#endif  // BATON_WORKER_WORKER_OPTIONS_H_
