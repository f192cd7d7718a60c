// Where randomness comes from. Sampling does not use this: its uniforms are a pure function of seed
// and position (sampling/).
#ifndef BATON_COMMON_RANDOM_H_
#define BATON_COMMON_RANDOM_H_

#include <cstdint>

#include "common/ids.h"

namespace baton {

class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t Next64() = 0;

  // Uniform in [0, bound); bound >= 1.
  uint64_t Below(uint64_t bound);
  // Uniform in [0, 1).
  double Unit();
};

// The kernel's generator: epochs, secrets, seeds. Thread-safe.
class OsRandom : public Random {
 public:
  uint64_t Next64() override;
};

// splitmix64: the same numbers on every machine. For simulations and tests. Not thread-safe.
class SeededRandom : public Random {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next64() override;

 private:
  uint64_t state_;
};

// Never zero.
Epoch NewEpoch(Random& random);

}  // namespace baton

#endif  // BATON_COMMON_RANDOM_H_
