// Which processor cores a process computes on, so that two can tell whether they take them from
// each other.
#ifndef BATON_COMMON_CORES_H_
#define BATON_COMMON_CORES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace baton {

struct Cores {
  std::string machine;         // equal for all processes of a machine; empty: unknown
  std::vector<uint32_t> cpus;  // that it may run on
  uint32_t threads = 0;        // that compute
};

// On one machine, with a core that both may run on, and with more threads than they have cores.
bool Contend(const Cores& a, const Cores& b);

// Those of the calling thread, for `threads` of its process; 0: one each.
Cores OwnCores(uint32_t threads);

}  // namespace baton

#endif  // BATON_COMMON_CORES_H_
