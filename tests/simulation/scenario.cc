#include "tests/simulation/scenario.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "common/random.h"
#include "kv/block_demand.h"

namespace baton::sim {

namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// What a request may need: a tight pool still fits every one. One choice never needs more than 12.
constexpr uint32_t kTightBlocks = 12;
constexpr uint32_t kManyBlocks = 40;

template <typename T, size_t kSize>
T Pick(Random& random, const T (&choices)[kSize]) {
  return choices[random.Below(kSize)];
}

SimWorkerOptions MakeWorker(Random& random, bool prefill, size_t index, bool tight_pool) {
  SimWorkerOptions worker;
  worker.name = (prefill ? "prefill-" : "decode-") + std::to_string(index);
  worker.prefill = prefill;
  worker.step_tokens = Pick(random, {0u, 7u, 16u, 256u});
  worker.max_running = Pick(random, {2u, 8u, 64u});
  worker.step_cost = microseconds(200 + random.Below(3000));
  worker.clock_offset = hours(random.Below(1000));
  worker.blocks = tight_pool ? kTightBlocks + static_cast<uint32_t>(random.Below(8)) : 160;
  // Too short for some queues: the source gives up and the router places again.
  if (tight_pool) worker.reserve_patience = Pick(random, {milliseconds(20), milliseconds(5000)});
  worker.seed = random.Next64();
  return worker;
}

std::vector<TokenId> MakePrompt(Random& random) {
  // Around multiples of the block size, where mistakes live, as often as anywhere.
  const uint64_t blocks = random.Below(6) * 16;
  const uint64_t length = random.Below(2) == 0 ? std::max<uint64_t>(1, blocks + random.Below(3)) - 1
                                               : random.Below(110);
  std::vector<TokenId> prompt;
  for (uint64_t i = 0; i < std::max<uint64_t>(1, length); ++i) {
    prompt.push_back(static_cast<TokenId>(random.Below(256)));
  }
  return prompt;
}

// What changes logits, ends and answers, by the bits of the request's own seed.
void AddSamplingFields(DecoderState& state) {
  const uint64_t bits = state.sampling.seed >> 32;
  const auto bit = [bits](int i) { return ((bits >> i) & 1) != 0; };
  if (bit(0)) state.sampling.presence_penalty = 0.5f;
  if (bit(1)) state.sampling.frequency_penalty = -0.25f;
  if (bit(2)) state.sampling.repetition_penalty = 1.5f;
  if (bit(3)) state.sampling.logit_bias = {{7, 2}, {256, -1}};
  if (bit(4)) state.stop.min_tokens = std::min(5u, state.stop.max_tokens);
  if (bit(5)) state.stop.include_stop = true;
  if (bit(6)) state.logprobs.output = static_cast<uint32_t>(bits >> 16) % 4;
  if (bit(7)) state.logprobs.prompt = static_cast<uint32_t>(bits >> 18) % 4;
}

// One choice as often as several, but never more than fit `blocks`.
size_t ChoicesOf(const DecoderState& state, uint32_t blocks) {
  static constexpr uint32_t kNumbers[] = {1, 1, 1, 1, 2, 3, 8, 16};
  uint32_t n = kNumbers[(state.sampling.seed >> 20) % 8];
  const auto needed = [&state](uint32_t choices) {
    return *kv::BlocksNeeded(state.prompt.size(), choices, state.stop.max_tokens,
                             SimWorkerOptions().block_size);
  };
  while (n > 1 && needed(n) > blocks) --n;
  return n;
}

PlannedRequest MakeRequest(Random& random, size_t routers, uint32_t blocks) {
  PlannedRequest request;
  request.router = random.Below(routers);
  request.arrival = microseconds(random.Below(300'000));
  DecoderState& state = request.state;
  state.prompt = MakePrompt(random);
  state.sampling.seed = random.Next64();
  state.stop.max_tokens = random.Below(8) == 0 ? 1 : 1 + static_cast<uint32_t>(random.Below(80));
  state.stop.ignore_eos = random.Below(4) == 0;
  if (random.Below(4) == 0) {
    for (int i = 0; i < 6; ++i) {
      state.stop.stop_token_ids.push_back(static_cast<TokenId>(random.Below(256)));
    }
  }
  if (random.Below(4) == 0) {
    state.stop.stop_strings.push_back(std::string(1, static_cast<char>('a' + random.Below(26))));
  }
  AddSamplingFields(state);
  state.choices.resize(ChoicesOf(state, blocks));
  if (random.Below(4) == 0) request.cancel_after = microseconds(random.Below(250'000));
  if (random.Below(5) == 0) request.deadline_after = microseconds(1 + random.Below(300'000));
  return request;
}

}  // namespace

Scenario MakeScenario(uint64_t seed, const ScenarioOptions& options) {
  SeededRandom random(seed * 2 + 1);
  Scenario scenario;
  scenario.seed = seed;
  scenario.tight_pool = seed % 3 == 0;
  scenario.routers = 1 + random.Below(2);
  if (options.prefill_workers) {
    const size_t prefills = 2 + random.Below(2);
    for (size_t i = 0; i < prefills; ++i) {
      scenario.workers.push_back(MakeWorker(random, true, i, scenario.tight_pool));
    }
  }
  const size_t decodes = 2 + random.Below(2);
  for (size_t i = 0; i < decodes; ++i) {
    scenario.workers.push_back(MakeWorker(random, false, i, scenario.tight_pool));
  }
  const size_t requests = 20 + random.Below(41);
  for (size_t i = 0; i < requests; ++i) {
    scenario.requests.push_back(
        MakeRequest(random, scenario.routers, scenario.tight_pool ? kTightBlocks : kManyBlocks));
  }
  scenario.network.slow_every = Pick<uint64_t>(random, {0, 50, 400});
  if (options.faults) {
    scenario.damage_every = Pick<uint64_t>(random, {0, 100, 1000});
    const size_t faults = 1 + random.Below(4);
    for (size_t i = 0; i < faults; ++i) {
      PlannedFault fault;
      fault.worker = random.Below(scenario.workers.size());
      fault.when = microseconds(random.Below(400'000));
      switch (random.Below(6)) {
        case 0:
          break;
        case 1:
          fault.router = random.Below(scenario.routers);
          break;
        case 2:
          fault.other_worker = random.Below(scenario.workers.size());
          break;
        default:
          fault.restart = milliseconds(random.Below(800));
      }
      scenario.faults.push_back(fault);
    }
  }
  return scenario;
}

}  // namespace baton::sim
