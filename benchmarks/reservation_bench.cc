// How many sequences fit into a KV cache, and how much of it holds tokens, when room is taken in
// blocks as the workers take it, and when each sequence has one contiguous piece. Sequences of a
// trace wait without end, join in order when there is room, and grow by a token a step. One JSON
// row per policy, means over the steps.
#include <algorithm>
#include <cstdint>
#include <fstream>
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

// Gives a sequence its room: an object that gives it back, or null when there is none.
class Policy {
 public:
  using Room = std::shared_ptr<void>;
  virtual ~Policy() = default;
  virtual Room Take(uint32_t prompt, uint32_t max_tokens) = 0;
};

class Paged final : public Policy {
 public:
  explicit Paged(uint32_t slots) : pool_({slots / kBlockSize}) {}
  Room Take(uint32_t prompt, uint32_t max_tokens) override {
    const auto blocks = kv::BlocksNeeded(prompt, 1, max_tokens, kBlockSize);
    if (!blocks.ok()) return nullptr;
    absl::StatusOr<kv::BlockLease> lease = pool_.Take({*blocks});
    return lease.ok() ? std::make_shared<kv::BlockLease>(*std::move(lease)) : nullptr;
  }

 private:
  kv::BlockPool pool_;
};

class Contiguous final : public Policy {
 public:
  // `length` 0: as long as the sequence may become.
  Contiguous(uint32_t slots, uint32_t length) : memory_(slots), length_(length) {}
  Room Take(uint32_t prompt, uint32_t max_tokens) override {
    const auto begin = memory_.Take(length_ > 0 ? length_ : prompt + max_tokens - 1);
    if (!begin.has_value()) return nullptr;
    return Room(this, [this, at = *begin](void*) { memory_.Free(at); });
  }

 private:
  FirstFit memory_;
  const uint32_t length_;
};

struct Running {
  Lengths lengths;
  uint32_t sampled = 0;
  Policy::Room room;
};

struct Means {
  double running = 0;
  double tokens = 0;
};

// What joins next, and the same again.
class Queue {
 public:
  explicit Queue(std::vector<Lengths> lengths) : lengths_(std::move(lengths)) {}
  const Lengths& front() const { return lengths_[next_ % lengths_.size()]; }
  void Pop() { ++next_; }

 private:
  const std::vector<Lengths> lengths_;
  size_t next_ = 0;
};

void Admit(uint32_t max_tokens, Policy& policy, Queue& queue, std::vector<Running>& running) {
  while (true) {
    Policy::Room room = policy.Take(queue.front().prompt, max_tokens);
    if (room == nullptr) return;
    running.push_back({queue.front(), 0, std::move(room)});
    queue.Pop();
  }
}

Means Simulate(const std::vector<Lengths>& lengths, uint32_t max_tokens, Policy& policy) {
  Queue queue(lengths);
  std::vector<Running> running;
  Means means;
  for (uint32_t step = 0; step < kWarmSteps + kSteps; ++step) {
    Admit(max_tokens, policy, queue, running);
    uint64_t tokens = 0;
    for (Running& one : running) tokens += one.lengths.prompt + one.sampled++;
    if (step >= kWarmSteps) {
      means.running += static_cast<double>(running.size()) / kSteps;
      means.tokens += static_cast<double>(tokens) / kSteps;
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
  Contiguous as_asked(slots, 0), whole_context(slots, context);
  const std::vector<std::pair<const char*, Policy*>> policies = {
      {"paged", &paged},
      {"contiguous_as_long_as_asked", &as_asked},
      {"contiguous_whole_context", &whole_context}};
  for (const auto& [name, policy] : policies) {
    const Means means = Simulate(lengths, max_tokens, *policy);
    std::cout << nlohmann::json{{"policy", name},
                                {"running", means.running},
                                {"used", means.tokens / slots}}
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
