#include "tests/simulation/scenario.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "common/random.h"
#include "engine/fake_model_runner.h"
#include "kv/block_demand.h"

namespace baton::sim {

namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// What a request may need: a tight pool still fits every one. One choice never needs more than 12.
constexpr uint32_t kTightBlocks = 12;
constexpr uint32_t kManyBlocks = 40;
constexpr size_t kLongestPrompt = 110;

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
                                               : random.Below(kLongestPrompt);
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

uint32_t NeededBy(const DecoderState& state, size_t choices) {
  return *kv::BlocksNeeded(state.prompt.size(), static_cast<uint32_t>(choices),
                           state.stop.max_tokens, SimWorkerOptions().block_size);
}

// One choice as often as several, but never more than fit `blocks`.
size_t ChoicesOf(const DecoderState& state, uint32_t blocks) {
  static constexpr uint32_t kNumbers[] = {1, 1, 1, 1, 2, 3, 8, 16};
  uint32_t n = kNumbers[(state.sampling.seed >> 20) % 8];
  while (n > 1 && NeededBy(state, n) > blocks) --n;
  return n;
}

// The prompt and what a right cluster answers to it.
std::vector<TokenId> WithAnswer(const DecoderState& state, uint32_t choice) {
  const SimWorkerOptions worker;
  const std::vector<TokenId> answer = engine::FakeContinuation(
      engine::FakeLayout(worker.block_size), SimVocab(), worker.context_length, state, choice);
  std::vector<TokenId> whole = state.prompt;
  whole.insert(whole.end(), answer.begin(), answer.end());
  return whole;
}

// Overwrites the beginning of its prompt with that of what came before: the scenario's own, or an
// earlier request and its answer, as a second turn has them. Lengths stay as they were drawn.
void ShareBeginnings(uint64_t seed, std::vector<PlannedRequest>& requests) {
  SeededRandom random(seed ^ 0x5eed);
  const std::vector<TokenId> stem = MakePrompt(random);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].tenant = Pick<const char*>(random, {"", "", "one", "two"});
    requests[i].bypass_cache = random.Below(8) == 0;
    std::vector<TokenId> before = stem;
    if (i > 0 && random.Below(2) == 0) {
      const PlannedRequest& earlier = requests[random.Below(i)];
      requests[i].tenant = earlier.tenant;
      before = WithAnswer(earlier.state, 0);
    }
    std::vector<TokenId>& prompt = requests[i].state.prompt;
    const size_t shared = std::min({before.size(), prompt.size(), size_t{random.Below(120)}});
    std::copy_n(before.begin(), shared, prompt.begin());
  }
}

// Most requests become the next turn of one that has probably ended by then: all of its prompt and
// answer, as far as a pool can take it, and then what is theirs.
void MakeConversations(uint64_t seed, std::vector<PlannedRequest>& requests) {
  SeededRandom random(seed ^ 0xc0de);
  for (size_t i = 0; i < requests.size(); ++i) {
    PlannedRequest& request = requests[i];
    request.arrival = milliseconds(20 * i) + request.arrival / 20;
    if (i < 4 || random.Below(4) == 0) continue;
    const PlannedRequest& earlier = requests[i - 4 + random.Below(3)];
    request.tenant = earlier.tenant;
    std::vector<TokenId>& prompt = request.state.prompt;
    std::vector<TokenId> turns = WithAnswer(earlier.state, 0);
    turns.resize(std::min(turns.size(), kLongestPrompt - 10));
    turns.insert(turns.end(), prompt.begin(),
                 prompt.begin() + std::min<ptrdiff_t>(10, std::ssize(prompt)));
    prompt = std::move(turns);
    request.state.choices.resize(ChoicesOf(request.state, kTightBlocks));
  }
}

size_t Shared(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const auto parting = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(parting.first - a.begin());
}

// Tokens of `prompt` that `other` has at its beginning, its answers included.
size_t SharedWith(const std::vector<TokenId>& prompt, const DecoderState& other) {
  size_t most = Shared(prompt, other.prompt);
  if (most < other.prompt.size()) return most;
  for (uint32_t choice = 0; choice < other.choices.size(); ++choice) {
    most = std::max(most, Shared(prompt, WithAnswer(other, choice)));
  }
  return most;
}

void NoteMostCached(std::vector<PlannedRequest>& requests) {
  for (PlannedRequest& request : requests) {
    if (request.bypass_cache || request.state.logprobs.prompt.has_value()) continue;
    for (const PlannedRequest& other : requests) {
      if (&other == &request || other.bypass_cache || other.tenant != request.tenant) continue;
      request.most_cached =
          std::max(request.most_cached, SharedWith(request.state.prompt, other.state));
    }
  }
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

// Long answers, most of which nobody ends early, so that what sequences take is what they grow by.
void MakeAnswerLong(PlannedRequest& request) {
  StopParams& stop = request.state.stop;
  stop.max_tokens = 30 + static_cast<uint32_t>(request.state.sampling.seed % 200);
  stop.ignore_eos = true;
  if (request.state.sampling.seed % 4 > 0) {
    stop.stop_token_ids.clear();
    stop.stop_strings.clear();
    request.cancel_after.reset();
    request.deadline_after.reset();
  }
}

void MakePoolsSmall(Scenario& scenario) {
  uint32_t all = 0;
  uint32_t largest = 0;
  for (PlannedRequest& request : scenario.requests) {
    request.arrival /= 100;
    MakeAnswerLong(request);
    const uint32_t needed = NeededBy(request.state, request.state.choices.size());
    all += needed;
    largest = std::max(largest, needed);
  }
  const auto decodes = static_cast<uint32_t>(
      std::count_if(scenario.workers.begin(), scenario.workers.end(),
                    [](const SimWorkerOptions& worker) { return !worker.prefill; }));
  for (SimWorkerOptions& worker : scenario.workers) {
    worker.max_running = 64;
    if (!worker.prefill) worker.blocks = std::max(largest, all * 2 / 5 / decodes);
  }
}

// Around a block, where mistakes live.
void AddWindow(Scenario& scenario) {
  constexpr uint32_t kWindows[] = {1, 15, 16, 17, 48};
  scenario.window = kWindows[scenario.seed % 5];
  for (SimWorkerOptions& worker : scenario.workers) worker.window = scenario.window;
}

// Of the whole cluster longer than every lease, but shorter than tombstones last (two leases); a
// router alone keeps within the workers' patience with it, a worker alone within the router's.
PlannedStandstill MakeStandstill(Random& random, const Scenario& scenario) {
  PlannedStandstill standstill;
  standstill.when = microseconds(random.Below(400'000));
  standstill.length = milliseconds(1 + random.Below(18'000));
  switch (random.Below(3)) {
    case 0:
      standstill.router = random.Below(scenario.routers);
      standstill.length = milliseconds(1 + random.Below(8'000));
      break;
    case 1:
      standstill.worker = random.Below(scenario.workers.size());
      standstill.length = milliseconds(1 + random.Below(2'000));
      break;
    default:
      break;
  }
  return standstill;
}

}  // namespace

Scenario MakeScenario(uint64_t seed, const ScenarioOptions& options) {
  SeededRandom random(seed * 2 + 1);
  Scenario scenario;
  scenario.seed = seed;
  scenario.shared_prefixes = options.shared_prefixes;
  scenario.tight_pool = options.shared_prefixes || seed % 3 == 0;
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
  for (SimWorkerOptions& worker : scenario.workers) worker.shares_cores = seed % 2 == 0;
  const size_t requests = 20 + random.Below(41);
  for (size_t i = 0; i < requests; ++i) {
    scenario.requests.push_back(
        MakeRequest(random, scenario.routers, scenario.tight_pool ? kTightBlocks : kManyBlocks));
  }
  ShareBeginnings(seed, scenario.requests);
  if (options.shared_prefixes) MakeConversations(seed, scenario.requests);
  scenario.small_pools = options.small_pools;
  if (options.small_pools) MakePoolsSmall(scenario);
  if (options.windows) AddWindow(scenario);
  NoteMostCached(scenario.requests);
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
  if (options.revocations) scenario.revoke_every = 12 + seed % 40;
  const size_t standstills = options.standstills ? 1 + random.Below(3) : 0;
  for (size_t i = 0; i < standstills; ++i) {
    scenario.standstills.push_back(MakeStandstill(random, scenario));
  }
  return scenario;
}

}  // namespace baton::sim
