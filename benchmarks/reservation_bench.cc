// How many sequences fit into a KV cache, and how much of it holds tokens, when room is taken in
// blocks as the workers take it, and when each sequence has one contiguous piece. Sequences of a
// trace wait without end, join in order when there is room, and grow by a token a step; one that
// finds no room to grow has the youngest give way (engine/room_by_age.h), which resumes before any
// other joins. One JSON row per policy, means over the steps: sequences, the share of the cache
// that holds tokens ("used"), that of what sequences have taken ("held"), that of blocks with any
// token
// ("live"), and how many sequences out of each that joined gave way ("preempted").
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/statusor.h"
#include "benchmarks/first_fit.h"
#include "kv/block_demand.h"
#include "kv/block_pool.h"

ABSL_FLAG(std::string, lengths, "", "CSV file: a head line, then input and output tokens");
ABSL_FLAG(uint32_t, slots, 65536, "tokens that the cache holds");
ABSL_FLAG(uint32_t, context, 2048, "the model's; longer sequences are left out");
ABSL_FLAG(uint32_t, max_tokens, 512,
          "what requests ask for at most: they end by themselves earlier");

namespace baton::benchmarks {
namespace {

constexpr uint32_t kBlockSize = 16;
constexpr uint32_t kWarmSteps = 2000;
constexpr uint32_t kSteps = 10000;

struct Lengths {
  uint32_t prompt = 0;
  uint32_t output = 0;
};

// A sequence's slots; whoever lets go of `leases` gives them back.
struct Room {
  std::vector<std::shared_ptr<void>> leases;  // empty: there is no room
  uint64_t slots = 0;
};

struct Running {
  Lengths lengths;
  uint32_t sampled = 0;
  Room room;
};

class Policy {
 public:
  virtual ~Policy() = default;
  // For a sequence that has sampled so many tokens and leaves so many blocks free.
  virtual Room Take(const Running& next, uint32_t max_tokens, uint32_t spare) = 0;
  // Room for `slots`; false: there is none.
  virtual bool Grow(uint64_t slots, Room& room) = 0;
};

class Paged final : public Policy {
 public:
  explicit Paged(uint32_t slots) : pool_({slots / kBlockSize}) {}
  Room Take(const Running& next, uint32_t max_tokens, uint32_t spare) override {
    const auto blocks =
        kv::BlocksNeeded(next.lengths.prompt, 1,
                         kv::TokensAtFirst(next.sampled, max_tokens, kBlockSize), kBlockSize);
    Room room;
    if (blocks.ok() && pool_.FitsNow({*blocks + spare})) TakeBlocks(*blocks, room);
    return room;
  }
  bool Grow(uint64_t slots, Room& room) override {
    return slots <= room.slots || TakeBlocks(1, room);
  }

 private:
  bool TakeBlocks(uint32_t blocks, Room& room) {
    absl::StatusOr<kv::BlockLease> lease = pool_.Take({blocks});
    if (!lease.ok()) return false;
    room.leases.push_back(std::make_shared<kv::BlockLease>(*std::move(lease)));
    room.slots += uint64_t{blocks} * kBlockSize;
    return true;
  }

  kv::BlockPool pool_;
};

class Contiguous final : public Policy {
 public:
  using Length = std::function<uint64_t(const Lengths& lengths, uint32_t max_tokens)>;

  Contiguous(uint32_t slots, Length length) : memory_(slots), length_(std::move(length)) {}
  Room Take(const Running& next, uint32_t max_tokens, uint32_t /*spare*/) override {
    const uint64_t slots = length_(next.lengths, max_tokens);
    const auto begin = memory_.Take(slots);
    if (!begin.has_value()) return {};
    return {{std::shared_ptr<void>(this, [this, at = *begin](void*) { memory_.Free(at); })}, slots};
  }
  bool Grow(uint64_t slots, Room& room) override { return slots <= room.slots; }

 private:
  FirstFit memory_;
  const Length length_;
};

struct Means {
  double running = 0;
  double tokens = 0;
  double taken = 0;  // slots
  double live = 0;   // slots of blocks with any token
  double joined = 0;
  double preempted = 0;
};

// What joins next: those that gave way, the oldest of them last in `preempted`, then the lengths,
// and the same again.
class Queue {
 public:
  explicit Queue(std::vector<Lengths> lengths) : lengths_(std::move(lengths)) {}
  Running front() const {
    return preempted_.empty() ? Running{lengths_[next_ % lengths_.size()], 0, {}}
                              : preempted_.back();
  }
  // Whether it is a new one.
  bool Pop() {
    if (preempted_.empty()) return ++next_ > 0;
    preempted_.pop_back();
    return false;
  }
  void Preempt(Running one) {
    one.room = {};
    preempted_.push_back(std::move(one));
  }

 private:
  const std::vector<Lengths> lengths_;
  std::vector<Running> preempted_;
  size_t next_ = 0;
};

// Oldest first.
using Batch = std::vector<Running>;

// As engine/room_by_age.h has it.
uint32_t Spare(const Batch& running, uint32_t max_tokens) {
  const auto growing = std::count_if(running.begin(), running.end(), [=](const Running& one) {
    return one.lengths.prompt + max_tokens - 1 > one.room.slots;
  });
  return static_cast<uint32_t>(growing + 1) / 2;
}

void Admit(uint32_t max_tokens, Policy& policy, Queue& queue, Batch& running, Means& means) {
  while (true) {
    Running next = queue.front();
    next.room = policy.Take(next, max_tokens, Spare(running, max_tokens));
    if (next.room.leases.empty()) return;
    running.push_back(std::move(next));
    if (queue.Pop()) ++means.joined;
  }
}

// Room for the next token of each. The youngest gives way to those before it.
void Grow(Policy& policy, Queue& queue, Batch& running, Means& means) {
  for (size_t i = 0; i < running.size(); ++i) {
    const uint64_t slots = running[i].lengths.prompt + running[i].sampled;
    while (!policy.Grow(slots, running[i].room)) {
      queue.Preempt(std::move(running.back()));
      running.pop_back();
      ++means.preempted;
      if (i == running.size()) return;
    }
  }
}

Means Simulate(const std::vector<Lengths>& lengths, uint32_t max_tokens, Policy& policy) {
  Queue queue(lengths);
  Batch running;
  Means means;
  for (uint32_t step = 0; step < kWarmSteps + kSteps; ++step) {
    Grow(policy, queue, running, means);
    Admit(max_tokens, policy, queue, running, means);
    uint64_t tokens = 0, taken = 0, live = 0;
    for (Running& one : running) {
      const uint64_t held = one.lengths.prompt + one.sampled++;
      tokens += held;
      taken += one.room.slots;
      live += kv::BlocksFor(held, kBlockSize) * kBlockSize;
    }
    if (step >= kWarmSteps) {
      means.running += static_cast<double>(running.size()) / kSteps;
      means.tokens += static_cast<double>(tokens) / kSteps;
      means.taken += static_cast<double>(taken) / kSteps;
      means.live += static_cast<double>(live) / kSteps;
    }
    std::erase_if(running, [](const Running& one) { return one.sampled >= one.lengths.output; });
  }
  return means;
}

std::vector<Lengths> ReadLengths(const std::string& path, uint32_t context, uint32_t max_tokens) {
  std::ifstream file(path);
  std::vector<Lengths> lengths;
  std::string line;
  for (std::getline(file, line); std::getline(file, line);) {
    std::istringstream fields(line);
    Lengths one;
    char comma = 0;
    if (!(fields >> one.prompt >> comma >> one.output) || one.prompt == 0) continue;
    one.output = std::clamp(one.output, 1u, max_tokens);
    if (one.prompt + max_tokens <= context) lengths.push_back(one);
  }
  return lengths;
}

int Run() {
  const uint32_t slots = absl::GetFlag(FLAGS_slots);
  const uint32_t context = absl::GetFlag(FLAGS_context);
  const uint32_t max_tokens = absl::GetFlag(FLAGS_max_tokens);
  const std::vector<Lengths> lengths =
      ReadLengths(absl::GetFlag(FLAGS_lengths), context, max_tokens);
  if (lengths.empty()) {
    std::cerr << "no lengths in " << absl::GetFlag(FLAGS_lengths) << "\n";
    return 1;
  }
  Paged paged(slots);
  Contiguous as_asked(slots,
                      [](const Lengths& one, uint32_t most) { return one.prompt + most - 1; });
  Contiguous whole_context(slots, [context](const Lengths&, uint32_t) { return context; });
  Contiguous known_length(slots,
                          [](const Lengths& one, uint32_t) { return one.prompt + one.output - 1; });
  const std::vector<std::pair<const char*, Policy*>> policies = {
      {"paged", &paged},
      {"contiguous_as_long_as_asked", &as_asked},
      {"contiguous_whole_context", &whole_context},
      {"contiguous_known_length", &known_length}};
  for (const auto& [name, policy] : policies) {
    const Means means = Simulate(lengths, max_tokens, *policy);
    std::cout << nlohmann::json{{"policy", name},
                                {"running", means.running},
                                {"used", means.tokens / slots},
                                {"held", means.tokens / means.taken},
                                {"live", means.tokens / means.live},
                                {"preempted", means.preempted / means.joined}}
                     .dump()
              << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace baton::benchmarks

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return baton::benchmarks::Run();
}
